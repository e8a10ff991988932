package caching

// unmappedIndex returns where a block stands, or would stand, among the unmapped blocks by address.
func (s *streamSet) unmappedIndex(b *block) int {
	lo, hi := 0, len(s.unmapped)
	for lo < hi {
		if mid := (lo + hi) / 2; s.unmapped[mid].addr < b.addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (s *streamSet) putUnmapped(b *block) {
	i := s.unmappedIndex(b)
	s.unmapped = append(s.unmapped, nil)
	copy(s.unmapped[i+1:], s.unmapped[i:])
	s.unmapped[i] = b
	b.inSet = true
}

func (s *streamSet) removeUnmapped(b *block) {
	i := s.unmappedIndex(b)
	s.unmapped = append(s.unmapped[:i], s.unmapped[i+1:]...)
	b.inSet = false
}

// replaceUnmapped puts rest, which lies behind b in the same hole, in b's place.
func (s *streamSet) replaceUnmapped(b, rest *block) {
	s.unmapped[s.unmappedIndex(b)] = rest
	b.inSet, rest.inSet = false, true
}
