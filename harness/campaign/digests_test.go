package campaign

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestDigests: runs that differ from one operation on have the digests of the same decisions up to it, and other ones behind it.
func TestDigests(t *testing.T) {
	spec, err := catalog.Parse("classic")
	require.NoError(t, err)
	w, err := gen.Find("mixed")
	require.NoError(t, err)
	of := func(tr *trace.Trace) []string {
		c := &Config{NewDevice: func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) }}
		p := executor.Compile(tr)
		d := newDigests(p.Len())
		_, err := c.execute(p, executor.Target{Name: "classic", New: spec.New}, 80<<30, d)
		require.NoError(t, err)
		return d.text()
	}
	for _, ops := range []int{3, 16, 100, 301} {
		whole := of(gen.Generate(w, 1, gen.Params{Ops: ops}))
		require.Len(t, whole, Digests)
		require.Equal(t, whole, of(gen.Generate(w, 1, gen.Params{Ops: ops})))
		for at := 0; at < ops; at += 1 + ops/13 {
			tr := gen.Generate(w, 1, gen.Params{Ops: ops})
			if tr.Ops[at].Kind != trace.Alloc {
				continue
			}
			tr.Ops[at].Bytes += 64 << 20
			changed := of(tr)
			for place := range Digests {
				require.Equal(t, DigestOps(ops, place) <= at, whole[place] == changed[place], "%d of %d, place %d", at, ops, place)
			}
		}
	}
	require.Equal(t, 301, DigestOps(301, Digests-1))
}
