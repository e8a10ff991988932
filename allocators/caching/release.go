package caching

// collects says whether garbage collection is in force: a fraction was set and the threshold is (section 16).
func (a *Allocator) collects() bool { return a.hasLimit && a.set.GCThreshold > 0 }

// gcLimit is the reserved bytes above which garbage collection starts, with a limit in bytes.
func (a *Allocator) gcLimit(limit uint64) uint64 {
	return uint64(a.set.GCThreshold * float64(limit))
}

// releaseSegment returns a classic segment that is one free block of a free set. If the device fails, the block stays in it.
func (a *Allocator) releaseSegment(b *block) error {
	g := b.seg
	if err := a.dev.Free(g.addr); err != nil {
		return err
	}
	g.stream.free.remove(b)
	a.reserved -= g.size
	a.stats.NumDeviceFree++
	a.stats.Segment.Sub(g.pool.small, 1)
	a.stats.ReservedBytes.Sub(g.pool.small, g.size)
	if g.size >= a.set.MaxSplitSize {
		a.stats.OversizeSegments.Sub(1)
	}
	a.dropSegment(g)
	return nil
}

// releaseOversize returns a few oversize blocks of the request's stream and pool (section 15.1): the smallest that covers
// the need, else the largest ones until they do. It tells whether enough was returned; what was returned stays so.
// Split blocks, which can be oversize only after the limit was lowered, are passed over.
func (a *Allocator) releaseOversize(set *streamSet, size uint64) (bool, error) {
	need := max(size, a.set.MaxSplitSize)
	for b := set.free.lowerBound(need); b != nil && !b.expandable(); b = set.free.next(b) {
		if !b.split() {
			return true, a.releaseSegment(b)
		}
	}
	var released uint64
	for b := set.free.lastBelow(need); b != nil && released < need && b.size >= a.set.MaxSplitSize; {
		before := set.free.previous(b)
		if !b.expandable() && !b.split() {
			released += b.size
			if err := a.releaseSegment(b); err != nil {
				return false, err
			}
		}
		b = before
	}
	return released >= need, nil
}

// releaseAll waits for every outstanding use and returns all that overlaps no live block (section 15.2).
func (a *Allocator) releaseAll() error {
	a.stats.NumSyncAllStreams++
	if err := a.insertDeferred(); err != nil {
		return err
	}
	if err := a.waitForEvents(); err != nil {
		return err
	}
	if err := a.releaseOwed(); err != nil {
		return err
	}
	if err := a.releasePool(&a.large); err != nil {
		return err
	}
	if err := a.releasePool(&a.small); err != nil {
		return err
	}
	return a.releaseFreeable()
}

// releasePool returns whole classic segments in the order of the free set, then unmaps whole pages in that order (section 15.3).
//
// Only blocks that can be a whole segment or hold a whole page are looked at: the smallest segment of the large pool has
// 10 MiB, that of the small pool 2 MiB, and no page is smaller.
func (a *Allocator) releasePool(p *pool) error {
	least := uint64(minOwnSegment)
	if p.small {
		least = smallSegment
	}
	a.paged = a.paged[:0]
	for _, set := range p.streams {
		a.scratch = set.free.appendFrom(a.scratch[:0], least)
		for _, b := range a.scratch {
			if b.expandable() {
				a.paged = append(a.paged, b)
			} else if !b.split() {
				if err := a.releaseSegment(b); err != nil {
					return err
				}
			}
		}
	}
	for _, b := range a.paged {
		if err := a.unmap(b); err != nil {
			return err
		}
	}
	return nil
}

// collectGarbage returns unsplit blocks of the large pool, of at least the mean age, until reserved bytes are under the
// threshold (section 16). It looks at no request, and a pass is never cut short.
func (a *Allocator) collectGarbage() error {
	start := a.reserved
	target := a.gcLimit(a.limit)
	if start <= target {
		return nil
	}
	a.senseGC(start)
	var ages, count uint64
	p := &a.large
	a.eachIdle(func(b *block) error {
		ages += p.lookups - b.born
		count++
		return nil
	})
	var reclaimed uint64
	for freed := true; freed && count > 0 && reclaimed < start-target; {
		a.senseGC(start - reclaimed)
		mean := float64(ages) / float64(count)
		freed = false
		err := a.eachIdle(func(b *block) error {
			age := p.lookups - b.born
			if float64(age) < mean {
				return nil
			}
			freed = true
			reclaimed += b.size
			ages -= age
			count--
			return a.releaseSegment(b)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachIdle visits the unsplit free blocks of the large pool in set order; do may release the block.
func (a *Allocator) eachIdle(do func(*block) error) error {
	for _, set := range a.large.streams {
		for b := set.free.first(); b != nil; {
			next := set.free.next(b)
			if !b.split() && !b.expandable() {
				if err := do(b); err != nil {
					return err
				}
			}
			b = next
		}
	}
	return nil
}
