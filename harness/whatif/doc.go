// Package whatif replays the history of a program under other settings, on other capacities and with parts of it changed, and
// says what would have become of it: what is refused, who pins memory, what each setting takes, which call sites are worth a change.
//
// In go a trace with what is known of where it came from (recorded decisions, call sites); out come figures in bytes. The package
// must not know file formats nor how reports look. What it says holds in replay, under the rules of the PyTorch version that
// the settings name.
package whatif
