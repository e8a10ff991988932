// Package snapshot reads and writes PyTorch memory snapshots, the pickle files of torch.cuda.memory._dump_snapshot, and
// makes traces of them that replay what the program did.
//
// In goes a file (pickle protocols 2, 4 and 5, gzip around it, or an HTML page of _memory_viz.py with the pickle inside; a dict or a
// legacy list of segments); Read gives a Snapshot, Import a trace a device with the state that the recording began from, and
// a Loss that says what of it is exact, inferred and missing. Write turns a Snapshot into a file that pytorch.org/memory_viz opens.
//
// Files come from strangers: the reader knows the opcodes that data takes and refuses all others by name and offset, so nothing
// in a file is executed, and memory stays in proportion to the file. The package must not know what an explanation
// or an advice is, and judges no refusal.
//
// Reading: pickle, opcodes and value (the decoder), builder and lists (records made of what it decodes), read. Import: backward (the
// state that the recording began from), forward (the trace from there on), releases (how returned memory is read: a retry, an
// empty_cache), pools (when private pools were open), capacity (what the device had), resolve (other readings, held against a replay).
package snapshot
