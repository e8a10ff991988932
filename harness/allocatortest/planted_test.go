package allocatortest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/allocatortest"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestPlantedBugIsFoundAndShrunk: the first fit whose holes grow over their neighbours is found by the one call, and cut down to
// the six operations that it takes: three neighbours, two of them freed in order, and an allocation that reaches over the third.
func TestPlantedBugIsFoundAndShrunk(t *testing.T) {
	start := time.Now()
	report, err := allocatortest.FirstReport(func(dev device.Device) (allocators.Allocator, error) {
		a, err := newFirstFit(dev)
		if f, ok := a.(*firstFit); ok {
			f.overlaps = true
		}
		return a, err
	})
	require.NoError(t, err)
	t.Logf("%s\nin %s", report, time.Since(start))
	require.Contains(t, report, "no-overlap/live")
	require.Contains(t, report, "shrunk from 600 to 6 operations")
	require.Less(t, time.Since(start), 5*time.Second)
}

// refuser refuses its third request and serves it when it is repeated: a false refusal, seen without any promise.
type refuser struct {
	allocators.Allocator
	calls int
}

func (r *refuser) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	r.calls++
	if r.calls == 3 {
		return allocators.Block{}, fmt.Errorf("not now: %w", device.ErrOutOfMemory)
	}
	return r.Allocator.Alloc(n, s)
}

// twofold gives large requests too little; where others came before and nothing was freed, it falls over them.
type twofold struct {
	allocators.Allocator
	calls int
	freed bool
}

func (a *twofold) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	b, err := a.Allocator.Alloc(n, s)
	if a.calls++; n < 1<<20 || err != nil {
		return b, err
	}
	if a.calls > 1 && !a.freed {
		panic("twofold")
	}
	b.Size--
	return b, nil
}

func (a *twofold) Free(at device.Addr) error {
	a.freed = true
	return a.Allocator.Free(at)
}

// TestAnotherFailureIsMet: what fails otherwise while a trace is shrunk is reported with its trace.
func TestAnotherFailureIsMet(t *testing.T) {
	tr, err := trace.ParseString("two", "# capacity: 1GiB\nalloc 0 512\nfree 0\nalloc 1 512\nalloc 2 1MiB\n")
	require.NoError(t, err)
	report, err := allocatortest.ReportOf(func(dev device.Device) (allocators.Allocator, error) {
		a, err := newFirstFit(dev)
		return &twofold{Allocator: a}, err
	}, tr)
	require.NoError(t, err)
	t.Log(report)
	require.Contains(t, report, "bounds-and-alignment/too-small")
	require.Contains(t, report, "shrunk from 4 to ")
	require.Regexp(t, `(?m)^while it was shrunk, another failure was met: no-crash.panic\S+\n(# .*\n)*alloc 0 `, report)
}

func TestFalseRefusalWithoutAPromise(t *testing.T) {
	report, err := allocatortest.FirstReport(func(dev device.Device) (allocators.Allocator, error) {
		a, err := newFirstFit(dev)
		return &refuser{Allocator: a}, err
	})
	require.NoError(t, err)
	t.Log(report)
	require.Contains(t, report, "no-false-oom-when-free-exceeds-request/retry")
	require.Contains(t, report, "to 3 operations")
}

// TestTheCorpusIsReplayed: the cases of the corpus alone find the planted bug too, and pass without it (TestFirstFit).
func TestTheCorpusIsReplayed(t *testing.T) {
	name, report, err := allocatortest.CorpusReport(func(dev device.Device) (allocators.Allocator, error) {
		a, err := newFirstFit(dev)
		if f, ok := a.(*firstFit); ok {
			f.overlaps = true
		}
		return a, err
	})
	require.NoError(t, err)
	t.Log(name, report)
	require.NotEmpty(t, name)
	require.Contains(t, report, "no-overlap")
}
