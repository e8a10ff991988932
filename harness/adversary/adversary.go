package adversary

import (
	"fmt"
	"strings"
)

// Sizes in bytes.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// PyTorch's public constants that the traps aim at, in bytes.
const (
	granule      = 512
	smallSegment = 2 * mib
	ownSegment   = 10 * mib
	largeSegment = 20 * mib
)

// Params size an adversary; zero fields mean its defaults.
type Params struct {
	// Capacity is the device's bytes, 2 MiB to 16 TiB.
	Capacity uint64
	// Unit is the smallest block, in bytes; a multiple of 512, so that no allocator rounds it.
	Unit uint64
	// Live is M, the most units live at once; Largest is n, the largest block in units, for some adversaries a power of two.
	Live, Largest int
	// Rounds is how often the attack is repeated.
	Rounds int
}

func (p Params) or(d Params) Params {
	if p.Capacity == 0 {
		p.Capacity = d.Capacity
	}
	if p.Unit == 0 {
		p.Unit = d.Unit
	}
	if p.Live == 0 {
		p.Live = d.Live
	}
	if p.Largest == 0 {
		p.Largest = d.Largest
	}
	if p.Rounds == 0 {
		p.Rounds = d.Rounds
	}
	return p
}

// String lists the fields that are not zero, as ` unit=512 live=2048`. The capacity is left out: it stands in the header.
func (p Params) String() string {
	var s strings.Builder
	for _, f := range []struct {
		name string
		n    uint64
	}{{"unit", p.Unit}, {"live", uint64(p.Live)}, {"largest", uint64(p.Largest)}, {"rounds", uint64(p.Rounds)}} {
		if f.n != 0 {
			fmt.Fprintf(&s, " %s=%d", f.name, f.n)
		}
	}
	return s.String()
}

// Adversary makes hostile traces of one kind.
type Adversary struct {
	Name, Summary string
	// Source is the paper or issue that it comes from.
	Source string
	// Adaptive says that it looks at addresses, so that its trace is made against one allocator.
	Adaptive bool
	// Conf and Fraction are settings that it attacks, for the header; empty and 0 if any will do.
	Conf     string
	Fraction float64
	Defaults Params
	play     func(*game, Params)
}

// All are all adversaries, in the order in which they are listed.
var All = []Adversary{
	{Name: "robson", Adaptive: true, Defaults: Params{Capacity: 8 * gib, Unit: 2 * mib, Live: 2048, Largest: 512}, play: robson,
		Summary: "the worst for any allocator that cannot move blocks: keeps one block in every window of a doubling size",
		Source:  "Robson, JACM 18(3), 1971 and 21(3), 1974"},
	{Name: "robson-index", Defaults: Params{Capacity: 8 * gib, Unit: 2 * mib, Live: 2048, Largest: 512}, play: robsonIndex,
		Summary: "the same without looking at addresses: which blocks to keep follows from their order",
		Source:  "after Robson; in this form the worst case of xapi-project/xen-api's quicktest for oxenstored"},
	{Name: "carve-and-pin", Adaptive: true, Defaults: Params{Capacity: 8 * gib, Unit: 512, Live: 4096, Largest: 64}, play: carve,
		Summary: "the worst that is known here for best fit: each size leaves gaps one unit too small for the next",
		Source:  "a lower bound of its own for Knuth, The Art of Computer Programming, volume 1, 2.5, exercise 42"},
	{Name: "pin-small", Defaults: Params{Capacity: 8 * gib}, play: pinSmall,
		Summary: "512 bytes live in each 2 MiB of the small pool; then 1 MiB + 1 byte is asked",
		Source:  "the small pool's segments of 2 MiB serve requests up to 1 MiB only (PyTorch, kSmallBuffer, kSmallSize)"},
	{Name: "pin-large", Defaults: Params{Capacity: 8 * gib}, play: pinLarge,
		Summary: "1 MiB + 512 bytes live in each 20 MiB of the large pool; then 19 MiB are asked",
		Source:  "requests below 10 MiB share segments of 20 MiB (PyTorch, kLargeBuffer)"},
	{Name: "page-pins", Defaults: Params{Capacity: 80 * gib}, play: pagePins,
		Summary: "2 MiB live in each page of 20 MiB of an expandable segment; then 20 MiB and 1 GiB are asked",
		Source:  "pages that overlap a live block are not unmapped (pytorch#152135)"},
	{Name: "comb", Defaults: Params{Capacity: 80 * gib, Unit: 64 * mib}, play: comb,
		Summary: "long- and short-lived blocks alternate in one segment; the gaps are one granule too small for what comes next",
		Source:  "long- between short-lived blocks split what is free (Wilson et al., Dynamic Storage Allocation, 1995)"},
	{Name: "sawtooth", Defaults: Params{Capacity: 80 * gib, Unit: 32 * mib, Rounds: 12}, play: sawtooth,
		Summary: "phases of rising sizes, each of which leaves one block in every segment behind",
		Source:  "after pytorch#96995 and sgl-project/SpecForge#739"},
	{Name: "class-edges", Defaults: Params{Capacity: 2 * gib, Rounds: 24}, play: classEdges,
		Summary: "sizes one granule to either side of where a request changes its pool, segment or rounding, with pins between",
		Source:  "PyTorch's constants: 1, 2, 10 and 20 MiB, and the split limit of 128 MiB that guides recommend"},
	{Name: "ramp", Defaults: Params{Capacity: 8 * gib, Unit: 64 * mib, Rounds: 48}, play: ramp,
		Summary: "batch N, N+1, ...: every tensor of a step is a little larger than the one whose place it could take",
		Source:  "pytorch#96995, sgl-project/SpecForge#739"},
	{Name: "order", Defaults: Params{Capacity: 8 * gib, Unit: 16 * mib}, play: order,
		Summary: "phases of small, then of larger blocks, each freed before the next: no cached segment serves the next phase",
		Source:  "pytorch/devlogs, eager, 2026-06-01: eight of 16 MiB then four of 32 MiB take 256 MiB, in reverse 128 MiB"},
	{Name: "ping-pong", Defaults: Params{Capacity: 80 * gib, Unit: gib, Rounds: 8}, play: pingPong,
		Summary: "the same working set on one stream after the other: what a stream has cached serves no other",
		Source:  "caches are kept apart by stream (PyTorch, BlockComparator); fairscale, ray: a new stream for each synchronisation"},
	{Name: "pending", Defaults: Params{Capacity: 80 * gib, Unit: gib}, play: pendingTrap,
		Summary: "the fitting block waits for another stream and its segment is pinned: the request fails, the next one succeeds",
		Source:  "pytorch#189504"},
	{Name: "slow-stream", Defaults: Params{Capacity: 80 * gib, Unit: 512 * mib, Rounds: 64}, play: slowStream,
		Summary: "one use on a stream that never gets done holds up the blocks freed after it",
		Source:  "pytorch#71616"},
	{Name: "fence", Conf: "max_split_size_mb:128,expandable_segments:True", Defaults: Params{Capacity: 80 * gib, Rounds: 100}, play: fence,
		Summary: "91 and 45.5 MiB freed behind a block that stays: two settings, each harmless, make a block that is never taken again",
		Source:  "pytorch#193400, #123548"},
	{Name: "fraction-edge", Fraction: 0.5, Defaults: Params{Capacity: 16 * gib}, play: fractionEdge,
		Summary: "requests that come out just below, at and over a memory-fraction limit, with room in a page for the last",
		Source:  "the limit is compared with a whole segment also where one page would do (specification, section 19)"},
	{Name: "collection-edge", Conf: "garbage_collection_threshold:0.8", Fraction: 1, Defaults: Params{Capacity: 16 * gib, Rounds: 40}, play: collectionEdge,
		Summary: "a working set at the garbage collection threshold whose cached segments are collected just before they are wanted",
		Source:  "collection frees the oldest whole segments first (PyTorch, garbage_collect_cached_blocks)"},
}

// Find returns the adversary of a name. The error lists the names.
func Find(name string) (*Adversary, error) {
	var names []string
	for i := range All {
		if All[i].Name == name {
			return &All[i], nil
		}
		names = append(names, All[i].Name)
	}
	return nil, fmt.Errorf("unknown adversary %q; there are %s (see shatter list adversaries)", name, strings.Join(names, ", "))
}
