// Package shrink makes a failing trace small.
//
// In go a trace and a predicate, which executes a trace and says whether it fails in the same way; out comes the smallest trace
// found that does, in the order (operations, streams, bytes), with what else failed on the way. The package knows no property
// and no allocator: Runs makes predicates of values that a roof hands in.
//
// Big things go first: the tail behind the failure, what has nothing to do with it, halves, quarters and so on down to single
// allocations and operations, then streams, sizes, settings, the capacity and the order. Every pass is finished before the
// passes begin anew, until none of them finds anything: then no operation, no allocation with all that belongs to it, no two
// of them if there are few, and no stream can be removed. Of the state to start from, segments and blocks are removed and
// numbered anew, but keep their sizes and places.
//
// Files: minimise (the loop and its budget), edit (traces without some operations), remove, simplify, sizes (the passes), less (the
// order), runs (predicates).
package shrink
