// Package adversary has hostile programs: the worst cases that theory knows, and traps for the rules of real allocators.
//
// In go parameters and, for the adaptive ones, an allocator to play against, whose addresses they look at; out comes an
// ordinary trace, so what they do replays, shrinks and goes into a corpus like any other. A trace that was made against one
// allocator runs on every other, but there it is only a trace.
//
// Theory counts in units (the smallest block): M is the most that is live at once, n the largest block, N the highest address
// that blocks reach. What is said of N here:
//
//	any allocator that cannot move blocks   N >= M(1 + log2(n)/2) - n + 1   (Robson, JACM 18(3), 1971; 21(3), 1974)
//	first fit                               N <= M(1 + ceil(log2 n))        (Robson, Computer Journal 20(3), 1977)
//	best fit                                about m M in the worst case     (Knuth, volume 1, 2.5, exercise 42)
//
// Files: adversary (the list), game (a trace under construction, with or without an opponent), robson, carve (theory), pins,
// shapes, traps (what is made for PyTorch's rules).
package adversary
