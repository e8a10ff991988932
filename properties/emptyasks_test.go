package properties_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// promising is a shelf that declares a promise.
type promising struct{ *shelf }

func (promising) Promise() allocators.Promise {
	return allocators.Promise{
		Kind: allocators.PromiseN, Round: func(n uint64) uint64 { return n }, SegmentSize: func(n uint64) uint64 { return n },
		PageSize: func(bool) uint64 { return 2 * mib },
	}
}

// TestServesWhenEmptyAsks: of whom it is asked. None of these serves again what it served first, so silence says that it was not asked.
func TestServesWhenEmptyAsks(t *testing.T) {
	none := fmt.Errorf("full: %w", device.ErrOutOfMemory)
	// worn is a shelf that never begins anew, and does something at each request.
	worn := func(do func(s *shelf)) executor.Target {
		return shelves(func(s *shelf) {
			s.alloc = func(s *shelf, n uint64) (allocators.Block, error) {
				if n > 40*mib && s.frees > 0 {
					return allocators.Block{}, none
				}
				do(s)
				return s.place(n, 512)
			}
		})
	}
	plain := worn(func(*shelf) {})
	const some = "alloc 0 1MiB\nfree 0\n"
	for _, c := range []struct {
		name, trace string
		target      executor.Target
		asked       bool
	}{
		{"plain", some, plain, true},
		{"promises", some, executor.Target{Name: "promising", New: func(d device.Device) (allocators.Allocator, error) {
			a, err := plain.New(d)
			return promising{a.(*shelf)}, err
		}}, false},
		{"pools", "pool begin 1\n" + some + "pool end 1\n", plain, false},
		{"others take memory", "foreign 1MiB\n" + some, plain, false},
		{"asks the device in vain", some, worn(func(s *shelf) { _, _ = s.dev.Malloc(900 * mib) }), true},
		{"buys", some, worn(func(s *shelf) { _, _ = s.dev.Malloc(2 * mib) }), false},
		{"buys chunks", some, worn(func(s *shelf) { _, _ = s.dev.Create(2 * mib) }), false},
		{"serves nothing, of no bytes either", "sync\n", shelves(func(s *shelf) {
			s.alloc = func(*shelf, uint64) (allocators.Block, error) { return allocators.Block{}, none }
		}), false},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			tr, err := trace.ParseString(c.name, c.trace)
			require.NoError(t, err)
			v, err := properties.ServesWhenEmpty.Check(&executor.Case{Trace: tr, Target: c.target, Capacity: 100 * mib, NewDevice: simulated})
			require.NoError(t, err)
			if !c.asked {
				require.Nil(t, v)
				return
			}
			require.NotNil(t, v)
			require.Equal(t, "refused: nothing is live any more, and 52428800 bytes are refused, which a fresh allocator serves: full: "+
				device.ErrOutOfMemory.Error(), v.Rule+": "+v.Detail)
		})
	}

	// Each of the devices that it makes may fail, and then nothing is said.
	tr, err := trace.ParseString("some", some)
	require.NoError(t, err)
	broken := errors.New("no device")
	for nth := 1; ; nth++ {
		made := 0
		v, err := properties.ServesWhenEmpty.Check(&executor.Case{Trace: tr, Target: plain, Capacity: 100 * mib, NewDevice: func(n uint64) (device.Device, error) {
			if made++; made == nth {
				return nil, broken
			}
			return simulated(n)
		}})
		if made < nth {
			require.Equal(t, 4, nth, "three devices are made")
			break
		}
		require.ErrorIs(t, err, broken, "device %d", nth)
		require.Nil(t, v)
	}
}
