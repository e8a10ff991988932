// Package external runs an allocator that lives in another process behind the ordinary Allocator interface: the caching
// allocator of an installed PyTorch (Torch), a library with the C functions of torch.cuda.memory.CUDAPluggableAllocator
// (Library), or any program that speaks the line protocol below.
//
// In go a Command, or the path of a PyTorch or a library; out comes a Target, whose New makes allocators. What becomes of the
// child is an outcome: a crash, an exit, silence beyond the watchdog's time and an answer that is no reply are each an
// *allocators.Death. What the child does not tell stays unknown.
//
// A library whose CUDA runtime is linked in, or in a library that it needs, is refused: its calls do not pass the simulated GPU.
// The static runtime talks to the driver through tables that no header describes (cuGetExportTable). So it is with RMM's wheels:
// tried were rmm_cu12 24.12.1, 25.2.0 and 26.10.0, whose _torch_allocator.so exports allocate and deallocate.
//
// # Line protocol, version 1
//
// The child reads lines from its standard input and answers each on its standard output; its standard error is free. It
// begins with a greeting:
//
//	shatter-child 1 [sessions=many] [record=yes] [empty_cache=yes] [stats=yes] [conf=yes] [fraction=yes] [pools=yes]
//	[abandon=yes]
//
// or with `error message=TEXT` if it cannot work. The words say what it can do; what it does not name it is not asked. Then
//
//	start capacity=BYTES [fraction=F] [retry=yes] [conf=SETTINGS]
//
// begins a session: a new allocator on an empty device of so many bytes. Answer: `ok`, with `pid=N` if the session runs in
// a process of its own, or `error message=TEXT` if the settings are wrong. After that each line is an operation of trace
// format v1 (alloc, free, record, sync, empty_cache, conf, fraction, foreign, pool), or `stats`, which asks for all statistics, or
// `end`. Many lines may come before the first answer is read. To `end` a child answers `done`; it then exits or, with
// sessions=many, waits for the next `start`. With abandon=yes the process named by pid=N gets SIGUSR1 when nobody wants the
// answers to what was sent ahead: it may pass over all lines up to `end` then. A child that answers nothing for the watchdog's
// time gets SIGTERM, so that it can send what it has buffered, and then SIGKILL.
//
// A reply is an outcome and words KEY=VALUE, with one space between:
//
//	ok      it was done                     skip    free or record of an id whose alloc was refused
//	oom     alloc: the memory is not there  error   anything else that the allocator raised
//	fatal TEXT      the child cannot go on, and the allocator is not to blame
//	done [signal=N] [exit=N]                the session has ended; unasked, its process has died
//
//	addr=HEX            alloc: the address, without 0x; 0 for a request of 0 bytes
//	size=BYTES          alloc: bytes set aside; left out if not known
//	retry=served|refused  oom, if the session asked for it: what the unchanged request would come to now
//	message=TEXT        the last word, to the end of the line, with \n and \\ escaped
//
// Statistics are those of torch.cuda.memory_stats() under its names (allocated_bytes.all.current=512); replies to
// empty_cache, stats and oom carry all of them, others those that changed, where the aggregate present values have short names:
// allocated, active, reserved, requested, inactive_split (bytes), segments, live_blocks, active_blocks, alloc_retries, ooms.
//
// The calls that the child made to its device, in order; addresses and sizes as above, H a handle, E an event, both small
// numbers of the child's:
//
//	malloc=BYTES@ADDR  mallocfail=BYTES  free=ADDR
//	reserve=BYTES@ADDR  unreserve=ADDR+BYTES
//	create=BYTES#H  createfail=BYTES  release=H  map=ADDR+BYTES#H  unmap=ADDR+BYTES
//	event=STREAM#E     an event was recorded on a stream       wait=E   it was waited for
//	sync=STREAM|all    a stream was waited for                 invalid=FUNCTION@ADDR  a call that the device refused
//
// The child's device must refuse when, and only when, the simulated device would (package simdev). Its addresses may be others.
// Keys that a version does not know are passed over.
package external

// ProtocolVersion is the version of the line protocol.
const ProtocolVersion = "1"
