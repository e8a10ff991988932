//go:build cuda

package cudadev

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"gorgonia.org/cu"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/cudadev/cudrv"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// Device is a GPU, or a part of its memory. It is used by one goroutine at a time, on any thread.
type Device struct {
	ordinal int
	ctx     cu.CUContext
	closed  bool

	limit, used, foreign uint64
	next                 uint64 // smallest limit at which a call refused by it would have succeeded
	regions              map[device.Addr]uint64
	reservations         map[device.Addr]uint64
	chunks               map[device.Handle]*chunk
	live                 spans // regions and mappings: what can be touched
	ballast              []device.Handle

	virtual  *simdev.Device // whose queues decide which events are done
	streams  map[device.Stream]*stream
	events   map[device.Event]*event
	words    []cu.DevicePtr // blocks of words that hold streams
	nextWord int
	holds    bool // stream memory operations work here
	staging  []byte
}

// Supported says why there is no GPU; nil if there is one.
func Supported() error {
	if err := cudrv.State(); err != nil {
		return fmt.Errorf("%w: %w", err, device.ErrEnvironment)
	}
	n, err := cu.NumDevices()
	if err != nil {
		return translate("counting GPUs", err)
	}
	if n == 0 {
		return fmt.Errorf("the NVIDIA driver has no GPU: %w", device.ErrEnvironment)
	}
	return nil
}

// FreeMemory is how much of a GPU is free now, in bytes, rounded down to 2 MiB.
func FreeMemory(ordinal int) (uint64, error) {
	d, err := open(ordinal)
	if err != nil {
		return 0, err
	}
	free, _, err := d.DriverInfo()
	return free / Granule * Granule, errors.Join(err, d.Close())
}

// open retains the GPU's primary context.
func open(ordinal int) (*Device, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, translate("counting GPUs", err)
	}
	if ordinal < 0 || ordinal >= n {
		return nil, fmt.Errorf("there is no GPU %d, there are %d: %w", ordinal, n, device.ErrEnvironment)
	}
	d := &Device{
		ordinal: ordinal, next: math.MaxUint64, regions: map[device.Addr]uint64{}, reservations: map[device.Addr]uint64{},
		chunks: map[device.Handle]*chunk{}, streams: map[device.Stream]*stream{},
		events: map[device.Event]*event{},
	}
	if d.ctx, err = cu.Device(ordinal).RetainPrimaryCtx(); err != nil {
		return nil, translate("retaining the context", err)
	}
	return d, nil
}

// New takes part of a GPU. What is missing (a driver, a GPU, virtual memory management, free memory) is device.ErrEnvironment.
func New(o Options) (*Device, error) {
	d, err := open(o.Ordinal)
	if err != nil {
		return nil, err
	}
	if err := d.start(o.Limit); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) start(limit uint64) error {
	defer d.bind()()
	if v, err := cu.Device(d.ordinal).Attribute(attributeVMM); err != nil || v == 0 {
		return fmt.Errorf("GPU %d has no virtual memory management (error %v): %w", d.ordinal, err, device.ErrEnvironment)
	}
	g, err := granularity(d.ordinal)
	if err != nil {
		return translate("asking for the granularity", err)
	}
	if g == 0 || Granule%g != 0 {
		return fmt.Errorf("GPU %d maps memory in granules of %d bytes, which do not divide 2 MiB: %w", d.ordinal, g, device.ErrEnvironment)
	}
	free, total, err := d.DriverInfo()
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = free / Granule * Granule
	}
	if limit < Granule {
		return fmt.Errorf("take at least 2 MiB of a GPU, not %d bytes: %w", limit, device.ErrInvalid)
	}
	if limit > free {
		return fmt.Errorf("GPU %d has %d of %d bytes free, %d were asked for; free the card or ask for less: %w",
			d.ordinal, free, total, limit, device.ErrEnvironment)
	}
	d.limit = limit
	if d.virtual, err = simdev.New(simdev.Options{Capacity: simdev.MinCapacity}); err != nil {
		return err
	}
	d.holds = d.tryHold() == nil
	return nil
}

// bind makes the context current to this goroutine's thread until the function that it returns is called.
func (d *Device) bind() func() {
	runtime.LockOSThread()
	// A failure shows in the call that follows, as an invalid context.
	_ = cu.SetCurrentContext(d.ctx)
	return runtime.UnlockOSThread
}

// Name is the GPU's name.
func (d *Device) Name() string {
	name, err := cu.Device(d.ordinal).Name()
	if err != nil {
		return fmt.Sprintf("GPU %d", d.ordinal)
	}
	return name
}

// DriverInfo is what the driver says is free, and the card's memory, in bytes. It moves with other processes.
func (d *Device) DriverInfo() (free, total uint64, err error) {
	defer d.bind()()
	f, t, err := cu.MemInfo()
	return uint64(f), uint64(t), translate("asking for free memory", err)
}

// Info returns what is free of the limit and the limit, in bytes.
func (d *Device) Info() (free, total uint64) {
	return d.limit - min(d.limit, d.used+d.foreign), d.limit
}

// NextCapacity implements device.CapacitySensor.
func (d *Device) NextCapacity() uint64 { return d.next }

// within tells whether the limit leaves this many bytes.
func (d *Device) within(size uint64) error {
	if free, _ := d.Info(); size > free {
		d.next = min(d.next, d.used+d.foreign+size)
		return fmt.Errorf("%d bytes with %d free of the limit of %d: %w", size, free, d.limit, device.ErrOutOfMemory)
	}
	return nil
}

// Close gives everything back and releases the context. A second call does nothing.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	defer d.bind()()
	var errs []error
	note := func(what string, err error) { errs = append(errs, translate(what, err)) }
	errs = append(errs, d.closeStreams())
	for _, m := range d.live {
		if m.chunk == nil {
			note("freeing", cu.MemFree(cu.DevicePtr(m.addr)))
		} else {
			note("unmapping", memUnmap(m.addr, m.size))
		}
	}
	for h := range d.chunks {
		note("releasing", memRelease(h))
	}
	for _, h := range d.ballast {
		note("releasing", memRelease(h))
	}
	for a, size := range d.reservations {
		note("unreserving", addressFree(a, size))
	}
	note("releasing the context", cu.Device(d.ordinal).ReleasePrimaryCtx())
	return errors.Join(errs...)
}
