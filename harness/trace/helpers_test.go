package trace

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// testSeed returns the seed of random tests, SHATTER_SEED or 1, and prints it.
func testSeed(t testing.TB) uint64 {
	seed := uint64(1)
	if s := os.Getenv("SHATTER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SHATTER_SEED=%q is not a number", s)
		}
		seed = n
	}
	t.Logf("SHATTER_SEED=%d", seed)
	return seed
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// wildTrace is any legal trace of n operations or fewer: ids, sizes, streams, settings and fractions from all over their
// ranges, edges often.
func wildTrace(r *rand.Rand, n int) *Trace {
	t := &Trace{}
	if r.IntN(2) == 0 {
		t.Set(KeyCapacity, strconv.FormatUint(wildSize(r), 10))
	}
	if r.IntN(2) == 0 {
		t.Set(KeyConf, wildText(r, r.IntN(3) == 0))
	}
	if r.IntN(2) == 0 {
		t.Set(KeyFraction, string(appendFraction(nil, wildFraction(r))))
	}
	var ids []uint64
	isLive := map[uint64]bool{}
	if r.IntN(4) == 0 {
		t.Ops, ids = wildStart(r, isLive)
	}
	var pools PoolSet
	for i := range t.Ops {
		pools.Step(&t.Ops[i])
	}
	for range r.IntN(n + 1) {
		op := Op{Kind: Kind(r.IntN(kindCount))}
		if op.Kind.Starts() {
			continue
		}
		switch op.Kind {
		case Alloc:
			op.ID, op.Bytes, op.Stream = wildID(r), wildSize(r), wildStream(r)
			if isLive[op.ID] {
				continue
			}
			isLive[op.ID], ids = true, append(ids, op.ID)
		case Free, Record, Use:
			if len(ids) == 0 {
				continue
			}
			i := r.IntN(len(ids))
			op.ID = ids[i]
			if op.Kind != Free {
				op.Stream = wildStream(r)
			} else {
				isLive[op.ID] = false
				ids[i] = ids[len(ids)-1]
				ids = ids[:len(ids)-1]
			}
		case Sync:
			if op.Stream = wildStream(r); r.IntN(2) == 0 {
				op.Stream = AllStreams
			}
		case Conf:
			op.Conf = wildConf(r)
		case Fraction:
			op.Fraction = wildFraction(r)
		case Foreign:
			op.Bytes = wildSize(r)
		case PoolBegin, PoolEnd, PoolRelease, EmptyCache:
			if op.Kind != EmptyCache || r.IntN(2) == 0 {
				op.Pool = wildPool(r)
			}
			if op.Kind == PoolBegin {
				op.Capture, op.Stream = r.IntN(2) == 0, wildStream(r)
				if r.IntN(2) == 0 {
					op.Stream = AllStreams
				}
			}
			if !pools.Step(&op) {
				continue
			}
		}
		t.Ops = append(t.Ops, op)
	}
	return t
}

func wildID(r *rand.Rand) uint64 {
	switch r.IntN(4) {
	case 0:
		return r.Uint64() >> (1 + r.IntN(62))
	case 1:
		return MaxID - r.Uint64N(3)
	case 2:
		return idShort - 2 + r.Uint64N(4)
	}
	return r.Uint64N(200)
}

func wildSize(r *rand.Rand) uint64 {
	switch r.IntN(4) {
	case 0:
		return r.Uint64() >> (4 + r.IntN(60))
	case 1:
		return applyDistance(classEdges[r.IntN(128)], byte(r.IntN(128)))
	case 2:
		return r.Uint64N(1<<40+1) >> r.IntN(40) * mib
	}
	return MaxBytes - r.Uint64N(2)
}

func wildStream(r *rand.Rand) device.Stream {
	switch r.IntN(4) {
	case 0:
		return MaxStream >> r.IntN(31)
	case 1:
		return device.Stream(126 + r.IntN(4)) // where the short form ends
	}
	return device.Stream(r.IntN(4))
}

// wildPool is one of a few pools most of the time, so that what is begun is ended.
func wildPool(r *rand.Rand) allocators.PoolID {
	switch r.IntN(8) {
	case 0:
		return 1 + allocators.PoolID(r.IntN(int(MaxPool)))
	case 1:
		return 127 + allocators.PoolID(r.IntN(3)) // where the short form ends
	}
	return 1 + allocators.PoolID(r.IntN(3))
}

func wildFraction(r *rand.Rand) float64 {
	switch r.IntN(4) {
	case 0:
		return float64(r.IntN(101)) / 100
	case 1:
		return math.Float64frombits(r.Uint64N(math.Float64bits(1) + 1))
	case 2:
		return [...]float64{0, math.SmallestNonzeroFloat64, 1, math.Nextafter(1, 0)}[r.IntN(4)]
	}
	return r.Float64()
}

// wildConf is legal settings: common ones, or any text that no comment begins in.
func wildConf(r *rand.Rand) string {
	if r.IntN(2) == 0 {
		return commonConf[r.IntN(len(commonConf))]
	}
	for {
		if s := wildText(r, false); checkConf(s) == (fault{}) {
			return s
		}
	}
}

func wildText(r *rand.Rand, empty bool) string {
	if empty {
		return ""
	}
	letters := []rune("abc:,_[]>=# \t\u0080\u00e4\u07ff\u8a9e\U0001f600\ufffd~!0123456789")
	var s strings.Builder
	for range 1 + r.IntN(20) {
		s.WriteRune(letters[r.IntN(len(letters))])
	}
	return trimBlank(s.String())
}

// typicalTrace is n operations of the kind that generators make: sequential ids on few streams, sizes mostly near edges.
func typicalTrace(r *rand.Rand, n int) *Trace {
	t := &Trace{}
	t.Set(KeyCapacity, "268435456")
	var ids []uint64
	for id := uint64(0); len(t.Ops) < n; {
		switch x := r.IntN(100); {
		case x < 48 || len(ids) == 0:
			bytes := applyDistance(classEdges[r.IntN(72)], byte(r.IntN(20)))
			if r.IntN(4) == 0 {
				bytes = 1 + r.Uint64N(64*mib)
			}
			t.Ops = append(t.Ops, Op{Kind: Alloc, ID: id, Bytes: bytes, Stream: device.Stream(r.IntN(3))})
			ids = append(ids, id)
			id++
		case x < 88:
			i := r.IntN(len(ids))
			t.Ops = append(t.Ops, Op{Kind: Free, ID: ids[i]})
			ids[i] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
		case x < 93:
			t.Ops = append(t.Ops, Op{Kind: Record, ID: ids[r.IntN(len(ids))], Stream: device.Stream(r.IntN(3))})
		case x < 97:
			t.Ops = append(t.Ops, Op{Kind: Sync, Stream: device.Stream(r.IntN(4)) - 1})
		default:
			t.Ops = append(t.Ops, Op{Kind: EmptyCache})
		}
	}
	return t
}

// wildStart is a state to start from.
func wildStart(r *rand.Rand, isLive map[uint64]bool) (ops []Op, ids []uint64) {
	for sid := range uint64(1 + r.IntN(4)) {
		g := Op{Kind: Segment, ID: sid * wildID(r) / 8, Bytes: (1 + r.Uint64N(100)) * 2 * mib, Stream: wildStream(r), Small: r.IntN(2) == 0, Expandable: r.IntN(2) == 0}
		if r.IntN(3) == 0 {
			g.Pool = wildPool(r)
		}
		if sid == 0 {
			g.ID = wildID(r)
		}
		segment := len(ops)
		if slices.ContainsFunc(ops, func(op Op) bool { return op.Kind == Segment && op.ID == g.ID }) {
			return ops, ids
		}
		ops = append(ops, g)
		for at := r.Uint64N(8) * StartGrain; r.IntN(4) > 0; at += r.Uint64N(3) * StartGrain {
			b := Op{Kind: Block, ID: wildID(r), Bytes: (1 + r.Uint64N(4000)) * StartGrain, Base: g.ID, Offset: at}
			if at += b.Bytes; isLive[b.ID] || at > g.Bytes {
				break
			}
			b.Requested = 1 + r.Uint64N(b.Bytes)
			isLive[b.ID], ids = true, append(ids, b.ID)
			ops = append(ops, b)
		}
		if g := ops[segment]; g.Expandable && r.IntN(2) == 0 {
			g.GoesOn, g.Base, g.Offset, g.ID = true, g.ID, g.Bytes+(1+r.Uint64N(9))*2*mib, MaxID/2-sid
			if slices.ContainsFunc(ops, func(op Op) bool { return op.Kind == Segment && op.ID == g.ID }) {
				return ops, ids
			}
			ops = append(ops, g)
		}
	}
	return ops, ids
}
