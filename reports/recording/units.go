package recording

import "fmt"

// each calls visit with the place in Steps of every number that is a size or an offset, and block with every block put.
func (r *Recording) each(size func(at int), block func(step int, at int)) error {
	at := 0
	for step := 0; at < len(r.Steps); step++ {
		bad := fmt.Errorf("recording of %s: step %d is cut off", r.Allocator, step)
		if at+3 > len(r.Steps) {
			return bad
		}
		size(at + 1)
		gone := int(r.Steps[at+2])
		at += 3 + gone
		if at >= len(r.Steps) {
			return bad
		}
		put := int(r.Steps[at])
		at++
		if at+5*put > len(r.Steps) {
			return bad
		}
		for range put {
			size(at + 1)
			size(at + 2)
			block(step, at)
			at += 5
		}
	}
	return nil
}

// eachBlock calls visit with every block that a step puts.
func (r *Recording) eachBlock(visit func(step int, offset, size uint64, born int)) error {
	return r.each(func(int) {}, func(step, at int) {
		visit(step, r.Steps[at+1], r.Steps[at+2], int(r.Steps[at+4])-1)
	})
}

// shrinkUnits divides all sizes by their greatest common divisor.
func (r *Recording) shrinkUnits() {
	r.Unit = 0
	_ = r.each(func(at int) { r.Unit = gcd(r.Steps[at], r.Unit) }, func(int, int) {})
	for _, g := range r.Segments {
		r.Unit = gcd(gcd(g.Size, g.Page), r.Unit)
	}
	r.Unit = max(r.Unit, 1)
	_ = r.each(func(at int) { r.Steps[at] /= r.Unit }, func(int, int) {})
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
