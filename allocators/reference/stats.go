package reference

import "github.com/shatter-gpu/shatter/allocators"

// ---- statistics: section 20

// count counts anew what there is, after each hand-out, free, completion of a free, purchase and return: the difference is one
// change of each figure.
func (r *Allocator) count() {
	const figures = 9
	var now [2][figures]uint64 // large, small
	for _, g := range r.segments {
		n := &now[0]
		if g.in.small {
			n = &now[1]
		}
		if g.page == 0 {
			n[5]++
		}
		for _, b := range g.blocks {
			if b.mapped {
				n[6] += b.size
			}
			if b.allocated {
				n[0]++
				n[1] += b.size
			}
			switch {
			case !b.idle():
				n[2]++
				n[3] += b.size
				n[4] += b.requested
			case g.page == 0 && b.split():
				n[7]++
				n[8] += b.size
			}
		}
	}
	s := &r.Stats
	for i, p := range [figures]*allocators.Pooled{
		&s.Allocation, &s.AllocatedBytes, &s.Active, &s.ActiveBytes, &s.RequestedBytes, &s.Segment, &s.ReservedBytes, &s.InactiveSplit,
		&s.InactiveSplitBytes,
	} {
		change(&p.Large, now[0][i])
		change(&p.Small, now[1][i])
		change(&p.All, now[0][i]+now[1][i])
	}
}

// change gives a figure another value. Values are signed: what counts as oversize can change.
func change(s *allocators.Stat, to uint64) {
	if by := int64(to - s.Current); by > 0 {
		s.Allocated += uint64(by)
	} else {
		s.Freed += uint64(-by)
	}
	s.Current = to
	s.Peak = uint64(max(int64(s.Peak), int64(to)))
}
