package gen

import (
	"math/bits"
	"math/rand/v2"
)

// Source is a stream of choices.
type Source interface {
	// Uint64n returns a number in [0, n); n > 0. Zero is the plainest choice.
	Uint64n(n uint64) uint64
}

// The streams of one seed. Configuration has its own, so that a further draw there leaves the operations unmoved.
const (
	streamConfig = iota
	streamOps
)

// NewSeeded returns an endless source. Different streams of a seed are independent of one another.
func NewSeeded(seed, stream uint64) Source { return &seeded{*rand.NewPCG(seed, stream)} }

type seeded struct{ pcg rand.PCG }

// Uint64n takes exactly one number of the generator for each choice, without rejection: the bias is below n/2^64, and what
// is drawn later does not depend on n.
func (s *seeded) Uint64n(n uint64) uint64 {
	hi, _ := bits.Mul64(s.pcg.Uint64(), n)
	return hi
}

// FromBytes returns a source that reads its choices from b, as many bytes each as n-1 has, and gives zeros when b is
// used up.
func FromBytes(b []byte) Source { return &finite{b} }

type finite struct{ left []byte }

func (f *finite) Uint64n(n uint64) uint64 {
	var v uint64
	for range (bits.Len64(n-1) + 7) / 8 {
		if len(f.left) == 0 {
			break
		}
		v = v<<8 | uint64(f.left[0])
		f.left = f.left[1:]
	}
	return v % n
}
