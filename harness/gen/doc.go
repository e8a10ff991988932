// Package gen makes traces: workloads that imitate programs, and random programs that hunt for broken promises.
//
// In goes a source of choices, out comes an ordinary, legal trace. A workload reads every decision from a Source, so a
// seed, a byte string and gopter drive the same code. There are two kinds of workload. Distribution workloads imitate
// programs on a device of real size, and their results may be counted and compared. Findings workloads draw a small device
// and settings with the trace and steer to where allocators break; what they yield is findings, and their rates mean
// nothing.
//
// Generators are guided by a model: the requested bytes of live and of pending blocks. They must not know an allocator,
// nor what became of an operation: a refused allocation counts as live until its free.
//
// Files: source and seed (where choices come from), workload (the list), program (the trace under construction), sizes, deck
// and settings (what is drawn), player and patterns (the engine of the Findings workloads), a file a workload, and gopter,
// the only one that imports it.
package gen
