// Package corpus keeps traces worth running again. So far it holds the native fuzz targets with their seeds, and the codec
// of the files in which `go test` keeps fuzz inputs.
//
// testdata/seeds has small named traces as text, made to be read and changed; their `# expect:` lines say which requests
// must be refused. testdata/fuzz/<Target> has each of them once more as bytes, which `go test -fuzz` starts from and plain
// `go test` replays. Every plain file there is an input, so nothing else may lie there. After a change to the text:
//
//	go test ./corpus -run TestSeeds -update
//
// An input that fuzzing found lands in testdata/fuzz/<Target> too, under a name of 16 hexadecimal digits. It stays as a seed once the
// fault is mended: give it a name, and its text to testdata/seeds.
//
// The package knows the harness, but no property, report or command: its tests bring these in.
package corpus
