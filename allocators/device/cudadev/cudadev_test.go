//go:build cuda

package cudadev_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/cudadev"
	"github.com/shatter-gpu/shatter/allocators/device/devicetest"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/properties"
)

// TestMain skips everything without a GPU, or fails if SHATTER_REQUIRE_GPU=1 says that there must be one.
func TestMain(m *testing.M) {
	if err := cudadev.Supported(); err != nil {
		if os.Getenv("SHATTER_REQUIRE_GPU") == "1" {
			fmt.Println("FAIL: SHATTER_REQUIRE_GPU=1:", err)
			os.Exit(1)
		}
		fmt.Println("SKIP:", err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const granule = cudadev.Granule

func start(t testing.TB, limit uint64) *cudadev.Device {
	t.Helper()
	d, err := cudadev.New(cudadev.Options{Limit: limit})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// differs are the rules that devices under the driver break, and why.
var differs = map[string]string{
	"addresses-new": "the driver gives freed addresses again; the simulated device idealises this",
}

// TestConform: the rules of all devices.
func TestConform(t *testing.T) {
	s := devicetest.Subject{Name: "cuda", New: func(n uint64) (device.Device, error) { return cudadev.New(cudadev.Options{Limit: n}) }}
	out, err := devicetest.Conform(s)
	require.NoError(t, err)
	t.Logf("\n%s", devicetest.Table([]string{s.Name}, [][]devicetest.Outcome{out}))
	for _, o := range out {
		// Whether addresses come again is up to the driver, so that rule may go either way.
		if differs[o.Rule] == "" {
			require.Contains(t, []devicetest.Result{devicetest.Pass, devicetest.NotApplicable}, o.Result, "%s: %s", o.Rule, o.Detail)
		}
	}
}

// TestCloseReturnsAll: whatever is still held, held streams included.
func TestCloseReturnsAll(t *testing.T) {
	watch := start(t, granule)
	before, _, err := watch.DriverInfo()
	require.NoError(t, err)
	d := start(t, 64*granule)
	_, err = d.Malloc(3 * granule)
	require.NoError(t, err)
	a, err := d.Reserve(8 * granule)
	require.NoError(t, err)
	h, err := d.Create(2 * granule)
	require.NoError(t, err)
	require.NoError(t, d.Map(a, 2*granule, h))
	require.NoError(t, d.SetForeign(5*granule))
	if d.Holds() {
		for s := range device.Stream(3) {
			_, err = d.Record(s)
			require.NoError(t, err)
		}
	}
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	if onFake(watch) { // elsewhere other processes move the figure
		after, _, err := watch.DriverInfo()
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
}

func onFake(d *cudadev.Device) bool { return strings.HasPrefix(d.Name(), "fake CUDA device") }

// TestLimits: more than the card has is a fault of the environment, a GPU that is not there too.
func TestLimits(t *testing.T) {
	_, err := cudadev.New(cudadev.Options{Limit: math.MaxUint64 >> 4})
	require.ErrorIs(t, err, device.ErrEnvironment)
	require.ErrorContains(t, err, "free the card or ask for less")
	_, err = cudadev.New(cudadev.Options{Ordinal: 1000})
	require.ErrorIs(t, err, device.ErrEnvironment)
	require.ErrorContains(t, err, "there is no GPU 1000")
	free, err := cudadev.FreeMemory(0)
	require.NoError(t, err)
	require.Zero(t, free%granule)
	_, total := start(t, 8*granule).Info()
	require.EqualValues(t, 8*granule, total)
}

// TestAnyThread: calls from goroutines that start on threads without a context.
func TestAnyThread(t *testing.T) {
	d := start(t, 64*granule)
	var mu sync.Mutex // the device is for one goroutine at a time
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for range 64 {
		wg.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			a, err := d.Malloc(1)
			if err == nil {
				err = d.Fill(a, 4096, 1)
			}
			if err == nil {
				err = d.Free(a)
			}
			errs <- err
		})
	}
	wg.Wait()
	for range 64 {
		require.NoError(t, <-errs)
	}
}

// TestFreeUnderHeldWork: a free while work is held neither hangs nor makes events done that were not waited for.
func TestFreeUnderHeldWork(t *testing.T) {
	d := start(t, 64*granule)
	if !d.Holds() {
		t.Skip("no stream memory operations here")
	}
	a, err := d.Malloc(1)
	require.NoError(t, err)
	e, err := d.Record(5)
	require.NoError(t, err)
	require.NoError(t, d.Free(a))
	done, err := d.Done(e)
	require.NoError(t, err)
	require.False(t, done)
	require.NoError(t, d.Wait(e))
	done, err = d.Done(e)
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, d.Destroy(e))
	require.ErrorIs(t, d.Destroy(e), device.ErrInvalid)
}

// TestGeneratedTraces: all workloads with all properties and the bytes.
func TestGeneratedTraces(t *testing.T) {
	const limit = 512 << 20
	for _, w := range gen.Workloads {
		for _, alloc := range []string{"classic", "expandable"} {
			tr := gen.Generate(w, 3, gen.Params{Ops: 200})
			tr.Name = w.Name
			spec, err := catalog.Parse(alloc)
			require.NoError(t, err)
			d := start(t, limit)
			target := executor.Target{Name: alloc, New: func(d device.Device) (allocators.Allocator, error) { return spec.New(d) }}
			r, err := executor.Execute(executor.Compile(tr), target, executor.Options{
				Device: d, Properties: properties.All(), Judge: properties.NewJudge(), Verify: executor.VerifyStamps,
			})
			require.NoError(t, err)
			require.Empty(t, r.Findings, "%s on %s", w.Name, alloc)
			require.Positive(t, r.Verified)
			require.NoError(t, d.Close())
		}
	}
}

// BenchmarkMapUnmap2MiB is the cost of a page through Go.
func BenchmarkMapUnmap2MiB(b *testing.B) {
	d := start(b, 64*granule)
	a, err := d.Reserve(granule)
	require.NoError(b, err)
	h, err := d.Create(granule)
	require.NoError(b, err)
	for b.Loop() {
		if d.Map(a, granule, h) != nil || d.Unmap(a, granule) != nil {
			b.Fatal("map or unmap failed")
		}
	}
}
