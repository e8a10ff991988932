package recording

// each calls size with the place in Steps of every number that is a size or an offset, and block with that of every block.
func (r *Recording) each(size, block func(at int)) {
	for at := 0; at < len(r.Steps); {
		size(at + 1)
		at += 3 + int(r.Steps[at+2])
		put := int(r.Steps[at])
		at++
		for range put {
			size(at + 1)
			size(at + 2)
			block(at)
			at += 5
		}
	}
}

// eachBlock calls visit with the place of every block.
func (r *Recording) eachBlock(visit func(at int)) { r.each(func(int) {}, visit) }

// shrinkUnits divides all sizes by their greatest common divisor.
func (r *Recording) shrinkUnits() {
	r.Unit = 0
	nothing := func(int) {}
	r.each(func(at int) { r.Unit = gcd(r.Steps[at], r.Unit) }, nothing)
	for _, g := range r.Segments {
		r.Unit = gcd(gcd(g.Size, g.Page), r.Unit)
	}
	r.Unit = max(r.Unit, 1)
	r.each(func(at int) { r.Steps[at] /= r.Unit }, nothing)
	for i := range r.Segments {
		r.Segments[i].Size /= r.Unit
		r.Segments[i].Page /= r.Unit
	}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
