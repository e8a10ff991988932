// Package corpus keeps what was found once: cases, the fuzz targets that start from them, and the codec of the files in which
// `go test` keeps fuzz inputs.
//
// A case is a text file NAME.trace in the folder of its state: accepted and known cases are replayed by every `go test`, pending
// ones wait for a reviewer, flaky ones come out differently on a real device, retired ones are kept for their story. Its header:
//
//	# source: an issue's link, or generator, seed and version
//	# class: fault class, one of classes.tsv
//	# about: what happens in it
//	# known: the upstream issue that it shows (known cases)
//	# finding: the signature of the finding that it shows or showed
//	# right: {"oom_ops":[],"most":{"peak.reserved":629145600}}     what a right allocator comes to, as in expect
//	# expect: {"conf":"","oom_ops":[83],"verdict":"fragmentation"} what comes out under some settings, decision for decision
//	# bites: classic                                               who comes out otherwise than right: an allocator NAME[@CONF],
//	# bites: planted:no-flush-before-refusing                      or a planted bug, with which something differs from expect
//	# note: a reviewer's
//	# hash: of operations and claims, so that they cannot change unnoticed; prose can
//
// Without a line right, what expect says is right. The word coarse in expect is the verdict of the recording, which looked at
// bytes only. `shatter corpus check` holds every case to its header, --update writes what comes out now.
//
// testdata/fuzz/<Target> has each accepted and known case once more as bytes, which `go test -fuzz` starts from and plain `go test`
// replays; `shatter corpus check --update` keeps it in step. What fuzzing found lands there too, under a name of 16 hexadecimal
// digits: `shatter corpus add --adopt FILE` makes a pending case of it.
//
// Files: case (a file), store (the folders), classes (fault classes), inputs (the fuzz inputs), targets (the fuzz targets' names),
// codec, conflicts (of settings). Package verify runs cases, package review writes a page about them.
//
// The package knows the harness, but no property, report or command: these are handed in by roofs, and by its tests.
package corpus
