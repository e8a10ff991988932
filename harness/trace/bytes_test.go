package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTablesAreUnambiguous(t *testing.T) {
	require.EqualValues(t, 0x97, firstAlias)
	require.EqualValues(t, 0xC0, aliasToggle)
	require.EqualValues(t, 64, 0x100-aliasToggle)
	require.LessOrEqual(t, len(commonConf), 127)
	require.Len(t, classOfEdge, len(classEdges), "an edge stands twice")
	seen := map[uint64]bool{}
	for _, d := range classOffsets {
		require.False(t, seen[d], "offset %d stands twice", d)
		seen[d] = true
	}
	for _, edge := range classEdges {
		require.LessOrEqual(t, edge, MaxBytes)
	}
	for _, conf := range commonConf {
		require.False(t, checkConf(conf).bad(), conf)
	}
	require.Greater(t, idShort, MaxDecodedOps)
}

// TestTablesNeverChange: stored inputs name sizes and settings by their place in the tables.
func TestTablesNeverChange(t *testing.T) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %q", classEdges, classOffsets, commonConf[:16]))
	require.Equal(t, "eb4f47c6d283090a", hex.EncodeToString(sum[:8]))
}

// TestRandomBytesAreLively asserts what makes native fuzzing worth while: decoded random bytes use everything, free what
// they allocate, and run out of a small capacity.
func TestRandomBytesAreLively(t *testing.T) {
	r := newRand(testSeed(t))
	const rounds, length = 200, 400
	kinds, streams, ops, capacities, leads := map[Kind]int{}, map[int64]int{}, 0, 0, 0
	for range rounds {
		b := randomBytes(r, length)
		for _, c := range b {
			if c >= 0x80 {
				leads++
			}
		}
		tr := Decode(b)
		ops += len(tr.Ops)
		for _, op := range tr.Ops {
			kinds[op.Kind]++
			if op.Kind == Alloc {
				streams[int64(op.Stream)]++
			}
		}
		if n, ok, err := tr.Capacity(); ok && err == nil && n >= 16*mib && n <= 2*gib {
			capacities++
		}
	}
	t.Logf("%.0f %% of the leads apply; of the operations:", 100*float64(ops)/float64(leads))
	for k := range Foreign + 1 { // what starts a trace is no matter of chance
		t.Logf("%-12s %5.1f %%", k, 100*float64(kinds[k])/float64(ops))
		require.Greater(t, kinds[k], ops/500, "%s", k)
	}
	require.Greater(t, ops*10, leads*6, "most leads must apply")
	require.Greater(t, kinds[Free]*10, kinds[Alloc]*6, "frees of live ids are common")
	require.Greater(t, kinds[Record], ops/50)
	require.Greater(t, kinds[Sync], ops/20)
	require.Greater(t, capacities, rounds*8/10, "most traces have a small capacity")
	for s := range int64(4) {
		require.Greater(t, streams[s], kinds[Alloc]/20, "stream %d", s)
	}
}

// TestMutationsStayLocal measures how many operations one mutation of Go's fuzzer changes in traces of 200: those of the
// longer trace that are not in the longest common subsequence. Fixed-width records score about 46, a self-synchronising form
// whose handles are found at run time about 12. Inputs that Encode never wrote fare worse, since their toggles depend on
// each other, but not by much.
func TestMutationsStayLocal(t *testing.T) {
	r := newRand(testSeed(t))
	t.Run("encoded", func(t *testing.T) {
		mean, median := disturbance(t, r, func() []byte { return Encode(typicalTrace(r, 200)) })
		require.Less(t, mean, 5.0)
		require.LessOrEqual(t, median, 2)
	})
	t.Run("random", func(t *testing.T) {
		mean, median := disturbance(t, r, func() []byte { return randomBytes(r, 512) })
		require.Less(t, mean, 8.0)
		require.LessOrEqual(t, median, 4)
	})
}

func disturbance(t *testing.T, r *rand.Rand, input func() []byte) (mean float64, median int) {
	const mutations = 3000
	disturbed := make([]int, 0, mutations)
	sum, ops := 0, 0
	var b []byte
	for i := range mutations {
		if i%50 == 0 {
			b = input()
		}
		base := Decode(b).Ops
		n := distance(base, Decode(mutate(r, b)).Ops)
		disturbed = append(disturbed, n)
		sum, ops = sum+n, ops+len(base)
	}
	slices.Sort(disturbed)
	mean, median = float64(sum)/mutations, disturbed[mutations/2]
	t.Logf("mean %.2f, median %d, p75 %d, p90 %d of %d operations disturbed", mean, median,
		disturbed[mutations*3/4], disturbed[mutations*9/10], ops/mutations)
	return mean, median
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// distance is the length of the longer list less that of the longest common subsequence.
func distance(a, b []Op) int {
	longer := max(len(a), len(b))
	common := 0
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b, common = a[1:], b[1:], common+1
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b, common = a[:len(a)-1], b[:len(b)-1], common+1
	}
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			up := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(up, row[j])
			}
			diagonal = up
		}
	}
	return longer - common - row[len(b)]
}

// mutate does to a copy of b what one mutation of Go's native fuzzer does: its eighteen ways, equally often, with its
// preference for short ranges.
func mutate(r *rand.Rand, b []byte) []byte {
	b = slices.Clone(b)
	length := func(n int) int {
		switch x := r.IntN(100); {
		case x < 90:
			n = min(8, n)
		case x < 99:
			n = min(32, n)
		}
		return r.IntN(n) + 1
	}
	constant := func(n int) []byte { return slices.Repeat([]byte{byte(r.Uint32())}, n) }
	interesting := []uint64{0x80, 0xff, 0, 1, 16, 32, 64, 100, 127, 0x8000, 0xff7f, 128, 255, 256, 512, 1000, 1024, 4096, 32767}
	at, to := r.IntN(len(b)), r.IntN(len(b))
	word := func(width int, change func(uint64) uint64) { // a number of some width, in either byte order
		at := r.IntN(len(b) - width + 1)
		part := b[at : at+width]
		big := r.IntN(2) == 0
		if big {
			slices.Reverse(part)
		}
		var v uint64
		for i := range part {
			v |= uint64(part[i]) << (8 * i)
		}
		v = change(v)
		for i := range part {
			part[i] = byte(v >> (8 * i))
		}
		if big {
			slices.Reverse(part)
		}
	}
	add := func(v uint64) uint64 {
		if d := r.Uint64N(35) + 1; r.IntN(2) == 0 {
			return v + d
		} else {
			return v - d
		}
	}
	pick := func(uint64) uint64 { return interesting[r.IntN(len(interesting))] }
	switch r.IntN(18) {
	case 0: // remove
		return slices.Delete(b, at, at+length(len(b)-at))
	case 1: // insert random bytes
		return slices.Insert(b, at, randomBytes(r, length(1024))...)
	case 2: // duplicate
		return slices.Insert(b, to, slices.Clone(b[at:at+length(len(b)-at)])...)
	case 3: // overwrite with another part
		copy(b[to:], slices.Clone(b[at:at+length(len(b)-at)]))
	case 4: // flip a bit
		b[at] ^= 1 << r.IntN(8)
	case 5: // change a byte
		b[at] ^= byte(1 + r.IntN(255))
	case 6: // swap two bytes
		b[at], b[to] = b[to], b[at]
	case 7, 8, 9, 10: // arithmetic on 1, 2, 4 or 8 bytes
		word(1<<r.IntN(4), add)
	case 11, 12, 13: // interesting values of 1, 2 or 4 bytes
		word(1<<r.IntN(3), pick)
	case 14: // insert one byte many times
		return slices.Insert(b, at, constant(length(4096))...)
	case 15: // overwrite with one byte
		copy(b[at:], constant(length(len(b)-at)))
	case 16: // shuffle a part
		part := b[at : at+length(len(b)-at)]
		r.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
	case 17: // swap two parts
		n := min(length(len(b)-max(at, to)), max(at, to)-min(at, to))
		keep := slices.Clone(b[at : at+n])
		copy(b[at:], b[to:to+n])
		copy(b[to:], keep)
	}
	return b
}
