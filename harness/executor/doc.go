// Package executor runs a trace on a target and says what happened: a history row an operation, findings where a property
// was broken, and a judgement of every refusal.
//
// In go a trace, a target (how to make an allocator on a device) and properties; out comes a Result. The executor knows the
// allocator through the interfaces of package allocators only, and knows no property: it calls those it is given. On a
// simulated device everything is deterministic.
//
// Files: program (a trace made ready to run), options and result (what goes into a run and comes out), run (a run and its steps),
// perform (the allocator's calls), follow (what the shadow heap and the state learn of each), check (properties and the judge are
// asked), finish (the end of a run), ledger (what the device gave), view (segments and blocks as the harness knows them, from the
// shadow heap and the ledger), state and property (what a property sees and is), row (history).
package executor
