// Package measure puts figures on how an allocator holds memory while a trace runs: the capacities at which the trace passes
// (exactly), what is reserved, idle and pinned at the peak, how many requests of a size would still be served, and what
// the device calls cost. In go a program, a target and how to make a device; out come figures in bytes.
//
// Capacity is the primary measure. Capacity enters a run only through comparisons with bytes, so a run at c is the run at
// every larger capacity below the smallest one at which a comparison would come out otherwise; jumping from one to the next
// gives the exact set of capacities.
package measure
