package snapshot

// findCapacity finds what PyTorch could take of the device, or nothing. It also sets the bytes reserved at the start.
func (f *forward) findCapacity(o Options) {
	for i := range f.p.regions.list {
		f.reserved += f.p.regions.list[i].size
	}
	start := f.reserved
	defer func() { f.reserved = start }()
	peak, atOOM, below := f.reserved, uint64(0), ^uint64(0)
	var groups []group
	var entries []int32
	for i := range f.events {
		switch e := &f.events[i]; e.Action {
		case SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap:
			entries = append(entries, int32(i))
		case Alloc, OOM:
			g := f.group(entries)
			for _, k := range entries {
				f.reserve(&f.events[k])
				peak = max(peak, f.reserved)
			}
			entries = entries[:0]
			if e.Action == OOM {
				atOOM = max(atOOM, f.reserved+e.Addr)
			} else if g.returned > 0 && g.bought > 0 {
				groups = append(groups, g)
			}
		case FreeRequested:
			for _, k := range entries {
				if s := &f.events[k]; s.Action.returns() {
					f.reserve(s)
				}
			}
			entries = entries[:0]
		}
	}
	for _, g := range groups {
		if g.before+g.bought > peak {
			below = min(below, g.before+g.bought)
		}
	}
	// What the recording was made on decides how it is read, whatever it is to be replayed on.
	m := f.m
	switch {
	case atOOM > 0:
		m.recorded, m.CapacityIs = atOOM, "reserved + device free at the recorded OOM"
	case o.Capacity >= peak:
		m.recorded = o.Capacity
	case below != ^uint64(0):
		m.recorded, m.CapacityIs = (below-1)>>21<<21, "the most at which the recorded retries had to happen"
	}
	if m.Capacity = m.recorded; o.Capacity > 0 && o.Capacity != m.Capacity || m.CapacityIs == "" && o.Capacity > 0 {
		m.Capacity, m.CapacityIs = o.Capacity, "as given"
	}
}

// reserve follows the reserved bytes through an entry.
func (f *forward) reserve(e *Event) {
	switch e.Action {
	case SegmentAlloc, SegmentMap:
		f.reserved += e.Size
	case SegmentFree, SegmentUnmap:
		f.reserved -= min(e.Size, f.reserved)
	}
}
