// Package trace is the language of the harness: a trace is a program for an allocator, one operation a line.
//
// In go text (plain or gzip), bytes of any kind, or operations that a program made; out come a Trace, its canonical
// text, its bytes and its hash. The package judges only what can be judged on the text. It must not know what allocators,
// devices or settings strings do, who made a trace, or what a run of it found.
//
// # Text
//
//	# shatter: 1
//	# capacity: 8589934592
//	alloc 0 2097152 stream=1   # weights
//	record 0 stream=2
//	free 0
//
// The operations:
//
//	alloc <id> <bytes> [stream=<n>]   bytes 0..2^60, may carry KiB, MiB, GiB, TiB; stream 0..2^31-1, default 0; id 0..2^63-1
//	free <id>
//	record <id> stream=<n>
//	sync [stream=<n>]                 without a stream: the whole device
//	use <id> stream=<n>               work that reads or writes the allocation is queued on the stream
//	empty_cache [pool=<pool>]         of a private pool only
//	conf <settings>                   the rest of the line, up to a # behind a blank
//	fraction <f>                      a decimal number 0..1
//	foreign <bytes>
//	pool begin <pool> [stream=<n>] [capture]   from here to its end requests (of the stream) go to private pool 1..2^31-1
//	pool end <pool>
//	pool release <pool>
//
// and, only before the first of these, the state to start from:
//
//	segment <sid> <bytes> stream=<n> pool=small|large [expandable [at=<sid>+<offset>]] [private=<pool>]
//	block <id> <bytes> requested=<n> at=<sid>+<offset>
//
// Segments stand in the order of their addresses, their sids are names of their own. An expandable one is a mapped range; the first of
// an address range stands at its start, at= places another behind it, with a hole between. Blocks are live, and stand within a
// segment in order; all else in a segment is free. Sizes and offsets are multiples of 512.
//
// Words stand apart by spaces or tabs. A # begins a comment, also behind an operation. An id is live from its alloc or block to its
// free; alloc of a live id, free, record or use of any other, is an error.
//
// A private pool begins to be with its first begin, or with a segment of it, which counts as one. Each begin is a use of the pool
// and each release ends one; a pool that is open cannot begin, one that is not cannot end, and the last release, after which
// the number means nothing any more, comes behind the end. The word capture says that a CUDA graph is captured meanwhile, without it
// the pool is one of the user's (torch.cuda.use_mem_pool).
//
// A line `# key: value` before the first operation is a header line if it has exactly that shape: one space behind the #, a
// key of a-z, 0-9, _ and -, a colon, and a blank or the end of the line. Any other text behind # is a comment. Keys may
// repeat; the first value counts. The values of shatter, capacity and fraction must be readable, all else is kept as it is.
//
// Canonical text is what Format writes: one space between words, sizes, the capacity included, as plain bytes, no stream=0
// behind alloc, blanks trimmed, lines ending in \n. Comments, blank lines, and the spaces before a comment behind an
// operation are kept.
//
// # Bytes
//
// Encode and Decode turn traces into short byte strings for native fuzzing, and any byte string into a legal trace. A byte
// with the top bit set leads an operation; the bytes behind it without are its operands of seven bits each. Missing operands
// are zero, surplus ones ignored, so a byte inserted, lost or changed disturbs the operation it stands in, and those on the
// same id. Numbers of several operands have the lowest bits first; zero operands at the end are left out. Operations that
// cannot apply are dropped. What each lead means, and the tables of sizes and settings, stand in bytetable.go; the first
// leads are canonical and never change, the rest are aliases that Encode does not write, or were taken over since.
//
// A size is a class, which picks an edge where allocators change their mind, and an offset, a small distance up or down;
// sizes without such a pair have exact forms. The header's capacity, conf and fraction are operations in the bytes, the
// first of each wins, and without one the header line is absent. Capacities begin at 64 MiB, small beside the sizes. Other
// header lines, comments, layout and the name are not carried.
package trace
