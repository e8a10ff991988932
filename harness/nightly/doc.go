// Package nightly runs a night: a fixed panel and an exploration, in worker processes, within a budget of time, and decides what of
// it is red.
//
// In goes a Config: how to start a worker, what there is to do, until when. Out comes a Night: differences of the panel, findings
// with what became of each, workers that were lost. The package runs no allocator itself and knows no property: what a Task means
// is the business of the process that serves it (Serve), which a roof provides.
//
// # Two halves
//
// The panel is committed traces under committed settings, identical every night. On a simulated device nothing in it is left to
// chance, so any difference to a log of earlier decisions is real, and is shown as the first row that differs; no statistics.
//
// The exploration runs generated sequences, adversaries and hunts from a seed. It yields findings, never trends: its traces are
// other ones every night.
//
// # Red
//
// Red is only what repeats. A finding of the exploration is repeated on fresh seeds of what found it; if none of them shows the same
// signature, and no other trace of this night or of an earlier one did, it is a suspect: listed, shrunk and kept, but no failure. A
// worker that was lost is replaced, and what it did is done again; only a second loss at the same task is a finding.
//
// # Workers
//
// A worker is a process that reads tasks from its standard input and answers on its standard output, a JSON line each. Between the
// two it says several times a second at which operation it is. One that stands still for the watchdog's time is killed, and the
// operation is named. So a device that hangs or a driver error that sticks ends a worker and not the night.
//
// Files: task (what is said between the two), serve and pulse (the worker's side), pool and process (ours), night (what is done
// when), result (the document), repeat (what is red), merge (shards).
package nightly
