package allocators

import "sort"

// Stat is one figure with its history: PyTorch's current, peak, allocated (sum of increases) and freed (sum of decreases).
// Like PyTorch's, Current is to be read as a signed number where what is counted can change meaning in mid-run (oversize
// blocks, once max_split_size was lowered): it may fall below 0.
type Stat struct {
	Current, Peak, Allocated, Freed uint64
}

// Add raises the figure.
func (s *Stat) Add(n uint64) {
	s.Current += n
	s.Allocated += n
	if int64(s.Current) > int64(s.Peak) {
		s.Peak = s.Current
	}
}

// Sub lowers the figure.
func (s *Stat) Sub(n uint64) {
	s.Current -= n
	s.Freed += n
}

// Pooled is a figure kept three times.
type Pooled struct {
	All, Small, Large Stat
}

func (p *Pooled) of(small bool) *Stat {
	if small {
		return &p.Small
	}
	return &p.Large
}

// Add raises the figure of the pool and of all.
func (p *Pooled) Add(small bool, n uint64) {
	p.All.Add(n)
	p.of(small).Add(n)
}

// Sub lowers the figure of the pool and of all.
func (p *Pooled) Sub(small bool, n uint64) {
	p.All.Sub(n)
	p.of(small).Sub(n)
}

// Stats are all statistics of PyTorch 2.6.0 (specification, section 20).
type Stats struct {
	Allocation, AllocatedBytes            Pooled // live blocks, block sizes
	Active, ActiveBytes                   Pooled // live or pending
	RequestedBytes                        Pooled // bytes asked for, of active blocks
	Segment, ReservedBytes                Pooled // Segment: not the expandable ones
	InactiveSplit, InactiveSplitBytes     Pooled // free blocks with a neighbour, not in expandable segments
	OversizeAllocations, OversizeSegments Stat
	NumAllocRetries, NumOOMs              uint64
	NumSyncAllStreams                     uint64
	NumDeviceAlloc, NumDeviceFree         uint64
	// MaxSplitSize is the value when the allocator was made, -1 if off.
	MaxSplitSize int64
}

// Named is a statistic with its flat PyTorch name.
type Named struct {
	Key   string
	Value int64
}

// MemoryStats returns what torch.cuda.memory_stats() returns, sorted by key.
func (s *Stats) MemoryStats() []Named {
	var out []Named
	stat := func(prefix string, v *Stat) {
		out = append(out, Named{prefix + ".allocated", int64(v.Allocated)}, Named{prefix + ".current", int64(v.Current)},
			Named{prefix + ".freed", int64(v.Freed)}, Named{prefix + ".peak", int64(v.Peak)})
	}
	for _, p := range []struct {
		name string
		v    *Pooled
	}{
		{"allocation", &s.Allocation}, {"allocated_bytes", &s.AllocatedBytes}, {"active", &s.Active},
		{"active_bytes", &s.ActiveBytes}, {"requested_bytes", &s.RequestedBytes}, {"segment", &s.Segment},
		{"reserved_bytes", &s.ReservedBytes}, {"inactive_split", &s.InactiveSplit},
		{"inactive_split_bytes", &s.InactiveSplitBytes},
	} {
		stat(p.name+".all", &p.v.All)
		stat(p.name+".small_pool", &p.v.Small)
		stat(p.name+".large_pool", &p.v.Large)
	}
	stat("oversize_allocations", &s.OversizeAllocations)
	stat("oversize_segments", &s.OversizeSegments)
	out = append(out, Named{"num_alloc_retries", int64(s.NumAllocRetries)}, Named{"num_ooms", int64(s.NumOOMs)},
		Named{"num_sync_all_streams", int64(s.NumSyncAllStreams)}, Named{"num_device_alloc", int64(s.NumDeviceAlloc)},
		Named{"num_device_free", int64(s.NumDeviceFree)}, Named{"max_split_size", s.MaxSplitSize})
	sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
	return out
}
