package campaign

import (
	"encoding/hex"
	"hash"
	"hash/fnv"

	"github.com/shatter-gpu/shatter/harness/executor"
)

// Digests is how many digests of a sequence's decisions are taken.
const Digests = 16

// DigestOps is how many operations of a trace of n the digest of a place (0 to Digests-1) covers: two runs whose digests agree
// up to a place and differ there first differ at an operation between the two.
func DigestOps(n, place int) int { return n * (place + 1) / Digests }

// digests hashes decisions: the lines of a decision log (executor.Row), one after the other, FNV-1a of 64 bits.
type digests struct {
	sum   hash.Hash64
	line  []byte
	taken []string
	ops   int // of the trace
}

func newDigests(ops int) *digests { return &digests{sum: fnv.New64a(), ops: ops} }

func (d *digests) add(r *executor.Row) {
	for len(d.taken) < Digests && DigestOps(d.ops, len(d.taken)) <= r.Op {
		d.take()
	}
	d.line = append(r.Append(d.line[:0]), '\n')
	d.sum.Write(d.line)
}

func (d *digests) take() { d.taken = append(d.taken, hex.EncodeToString(d.sum.Sum(nil))) }

// text are the digests; the last one is of the whole, as are those of places that a broken-off run did not reach.
func (d *digests) text() []string {
	for len(d.taken) < Digests {
		d.take()
	}
	return d.taken
}
