package gen

import "math/bits"

// Thresholds of PyTorch's allocator, in bytes, that sizes aim at. They are its public constants; a generator knows them as it
// knows tensor shapes.
const (
	granule      = 512      // sizes are rounded up to it
	smallMost    = 1 << 20  // the largest size of the small pool
	smallSegment = 2 << 20  // what small requests buy; own segments are a multiple of it
	ownSegment   = 10 << 20 // from here on a request buys a segment of its own
	largeSegment = 20 << 20 // what smaller large requests buy; the page of expandable segments
)

// hiddens are the hidden sizes of well-known transformers (GPT-2, BERT, LLaMA, Mistral, Gemma), in elements.
var hiddens = [...]uint64{768, 1024, 1280, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 8192}

// logUniform draws from lo to hi: first the octave, then the place in it. lo > 0.
func logUniform(src Source, lo, hi uint64) uint64 {
	if hi <= lo {
		return lo
	}
	base := lo << src.Uint64n(uint64(bits.Len64((hi-1)/lo)))
	return base + src.Uint64n(min(base, hi-base+1))
}

// tensor draws a typical tensor of about hi bytes at most: a power of two, three times a power of two, or rows of a hidden
// size in two-byte elements.
func tensor(src Source, hi uint64) uint64 {
	octaves := uint64(max(bits.Len64(hi/granule), 1))
	switch src.Uint64n(3) {
	case 0:
		return granule << src.Uint64n(octaves)
	case 1:
		return 3 * granule / 2 << src.Uint64n(octaves)
	}
	row := 2 * hiddens[src.Uint64n(uint64(len(hiddens)))]
	return row * logUniform(src, 1, hi/row)
}

// classEdges are the sizes at which a request changes its class.
var classEdges = [...]uint64{granule, smallMost, smallSegment, ownSegment, largeSegment}

// edgeOffsets are the distances from an edge: the byte, the granule, and both.
var edgeOffsets = [...]int64{0, 1, -1, granule, -granule, granule + 1, -granule + 1, granule - 1, 1 - 2*granule}

// edgeSize draws a size at a class edge, a page multiple, the split limit or a step of the rounding, of hi bytes at most
// but for the offset.
func edgeSize(src Source, set *settings, hi uint64) uint64 {
	var edge uint64
	switch src.Uint64n(8) {
	default:
		edge = classEdges[src.Uint64n(uint64(len(classEdges)))]
	case 4:
		edge = smallSegment * between(src, 1, 16)
	case 5:
		edge = largeSegment * between(src, 1, 4)
	case 6:
		edge = set.splitMB * mib
	case 7:
		floor := uint64(mib) << src.Uint64n(5)
		edge = floor + floor/set.steps()*src.Uint64n(set.steps())
	}
	if edge == 0 || edge > hi {
		edge = classEdges[src.Uint64n(3)]
	}
	offset := edgeOffsets[src.Uint64n(uint64(len(edgeOffsets)))]
	return uint64(max(int64(edge)+offset, 1))
}

// menu is a way to draw a size.
type menu uint8

const (
	spread  menu = iota // anything up to a sixteenth of the device
	tensors             // typical tensors, up to a sixteenth of the device
	small               // the small pool
	shared              // large requests that share a segment: 1 to 10 MiB
	odd                 // one byte over a granule, so that rounding costs most
	atEdge              // class edges
	big                 // a sixteenth to a quarter of the device
	menuCount
)

// menuWeights are cards of a deck.
type menuWeights [menuCount]uint8

// size draws a size for a device of some capacity.
func (m menu) size(src Source, set *settings, capacity uint64) uint64 {
	most := max(capacity/16, granule)
	switch m {
	case tensors:
		return tensor(src, most)
	case small:
		return logUniform(src, granule, smallMost)
	case shared:
		return logUniform(src, smallMost+1, min(max(most, 2*smallMost), ownSegment))
	case odd:
		return logUniform(src, 1, most/granule)*granule + 1
	case atEdge:
		return edgeSize(src, set, capacity/3)
	case big:
		return logUniform(src, most, capacity/4)
	}
	return logUniform(src, granule, most)
}
