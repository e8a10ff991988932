//go:build cuda

package cudadev

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorgonia.org/cu"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Latencies times each driver call on an otherwise idle device: the rounds are run one after the other, each call with one size
// at a time. A size that the device's limit does not allow is left out. When the context ends it returns what it has.
func (d *Device) Latencies(ctx context.Context, sizes []uint64, rounds int) ([]Latency, error) {
	var out []Latency
	for _, size := range sizes {
		if free, _ := d.Info(); size > free {
			continue
		}
		taken := map[string][]time.Duration{}
		for range rounds {
			if ctx.Err() != nil {
				break
			}
			if err := d.timeCalls(size, taken); err != nil {
				return out, err
			}
		}
		for _, call := range timedCalls {
			if t := taken[call]; len(t) > 0 {
				slices.Sort(t)
				out = append(out, Latency{call, size, t})
			}
		}
	}
	return out, nil
}

// timedCalls are the calls of a round, in order.
var timedCalls = []string{
	"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemAddressFree",
	"cuMemAlloc", "cuMemFree",
}

func (d *Device) timeCalls(size uint64, taken map[string][]time.Duration) error {
	defer d.bind()()
	var a device.Addr
	var h device.Handle
	var p cu.DevicePtr
	steps := []func() (err error){
		func() (err error) { a, err = addressReserve(size); return err },
		func() (err error) { h, err = memCreate(d.ordinal, size); return err },
		func() error { return memMap(a, size, h) },
		func() error { return memSetAccess(d.ordinal, a, size) },
		func() error { return memUnmap(a, size) },
		func() error { return memRelease(h) },
		func() error { return addressFree(a, size) },
		func() (err error) { p, err = cu.MemAlloc(int64(size)); return err },
		func() error { return cu.MemFree(p) },
	}
	for i, call := range timedCalls {
		start := time.Now()
		err := steps[i]()
		took := time.Since(start)
		if err != nil {
			return translate(fmt.Sprintf("timing %s of %d bytes", call, size), err)
		}
		taken[call] = append(taken[call], took)
	}
	return nil
}
