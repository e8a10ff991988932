package catalog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/cudadev"
	"github.com/shatter-gpu/shatter/allocators/device/hostvmm"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// DeviceSpec is a device to run on.
type DeviceSpec struct {
	// Name is the text that ParseDevice was given.
	Name string
	// Kind is sim, host or cuda.
	Kind string
	// Capacity in bytes; 0 if the text gave none.
	Capacity uint64
	// Options of the simulated device, without capacity.
	Options simdev.Options
	// Ordinal is the number of the GPU.
	Ordinal int
}

// Devices are the kinds of device, as they are listed.
var Devices = []Entry{
	{"sim", "sim[:SIZE][,addr=bump|low|random:SEED]: simulated GPU, byte-counted, deterministic, 2 MiB to 16 TiB", true},
	{"host", "host:SIZE: host memory mapped as a GPU driver would, real bytes and faults, 2 MiB to 1 TiB (Linux)", true},
	{"cuda", "cuda:N[:SIZE]: a real NVIDIA GPU, at most SIZE of it (default: what is free)", true},
}

// Missing says why devices of a kind cannot be used here; nil if they can.
func Missing(kind string) error {
	switch kind {
	case "host":
		return hostvmm.Supported()
	case "cuda":
		return cudadev.Supported()
	}
	return nil
}

// ParseDevice reads KIND[:SIZE][,OPTION]. size parses a size such as 80GiB. An error that wraps device.ErrEnvironment
// means that there is no such device here.
func ParseDevice(text string, size func(string) (uint64, error)) (DeviceSpec, error) {
	s := DeviceSpec{Name: text}
	head, options, _ := strings.Cut(text, ",")
	var capacity string
	var sized bool
	s.Kind, capacity, sized = strings.Cut(head, ":")
	switch s.Kind {
	case "sim":
	case "host":
		if !sized {
			return s, fmt.Errorf("device %q: the size is missing; write for example host:2GiB", text)
		}
	case "cuda":
		ordinal, rest, more := strings.Cut(capacity, ":")
		n, err := strconv.ParseUint(ordinal, 10, 16)
		if err != nil {
			return s, fmt.Errorf("device %q: the number of the GPU is missing; write for example cuda:0 or cuda:0:8GiB", text)
		}
		s.Ordinal, capacity, sized = int(n), rest, more
	default:
		return s, fmt.Errorf("unknown device %q; there are sim, host and cuda, as in sim:80GiB (see shatter list devices)", text)
	}
	if sized {
		var err error
		if s.Capacity, err = size(capacity); err != nil {
			return s, fmt.Errorf("device %q: %w", text, err)
		}
		if err := s.Check(s.Capacity); err != nil {
			return s, fmt.Errorf("device %q: %w", text, err)
		}
	}
	if options != "" {
		if s.Kind != "sim" {
			return s, fmt.Errorf("device %q: %s takes no options, %q is for sim", text, s.Kind, options)
		}
		return s.order(options)
	}
	if err := Missing(s.Kind); err != nil {
		return s, fmt.Errorf("device %q: %w", text, err)
	}
	if s.Kind == "cuda" && !sized {
		var err error
		if s.Capacity, err = cudadev.FreeMemory(s.Ordinal); err != nil {
			return s, fmt.Errorf("device %q: %w", text, err)
		}
	}
	return s, nil
}

// order reads the option of the simulated device.
func (s DeviceSpec) order(options string) (DeviceSpec, error) {
	order, ok := strings.CutPrefix(options, "addr=")
	if !ok {
		return s, fmt.Errorf("device %q: unknown option %q; there is addr=bump, addr=low and addr=random:SEED", s.Name, options)
	}
	name, seed, seeded := strings.Cut(order, ":")
	switch {
	case name == "bump" && !seeded:
		s.Options.Order = simdev.Bump
	case name == "low" && !seeded:
		s.Options.Order = simdev.Low
	case name == "random" && seeded:
		n, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			return s, fmt.Errorf("device %q: the seed %q is not a number", s.Name, seed)
		}
		s.Options.Order, s.Options.Seed = simdev.Random, n
	default:
		return s, fmt.Errorf("device %q: unknown address order %q; write addr=bump, addr=low or addr=random:SEED", s.Name, order)
	}
	return s, nil
}

// CheckCapacity tells whether a simulated device can have this many bytes.
func CheckCapacity(bytes uint64) error { return DeviceSpec{Kind: "sim"}.Check(bytes) }

// Check tells whether the device can have this many bytes.
func (s DeviceSpec) Check(bytes uint64) error {
	switch {
	case s.Kind == "host" && (bytes < hostvmm.MinCapacity || bytes > hostvmm.MaxCapacity):
		return fmt.Errorf("a device of %d bytes: a host device has 2 MiB to 1 TiB; write for example host:2GiB", bytes)
	case s.Kind == "cuda" && bytes < cudadev.Granule:
		return fmt.Errorf("a device of %d bytes: take at least 2 MiB of a GPU; write for example cuda:0:8GiB", bytes)
	case bytes < simdev.MinCapacity || bytes > simdev.MaxCapacity:
		return fmt.Errorf("a device of %d bytes: a simulated device has 2 MiB to 16 TiB; write for example 80GiB", bytes)
	}
	return nil
}

// HasBytes tells whether the device's memory holds bytes that can be verified.
func (s DeviceSpec) HasBytes() bool { return s.Kind == "host" || s.Kind == "cuda" }

// New makes the device, empty. One with real memory is an io.Closer.
func (s DeviceSpec) New(capacity uint64) (device.Device, error) {
	switch s.Kind {
	case "host":
		return hostvmm.New(hostvmm.Options{Capacity: capacity})
	case "cuda":
		return cudadev.New(cudadev.Options{Ordinal: s.Ordinal, Limit: capacity})
	}
	o := s.Options
	o.Capacity = capacity
	return simdev.New(o)
}

// NewSimulated makes a simulated device of this capacity, for measures that need more devices than there are.
func (s DeviceSpec) NewSimulated(capacity uint64) (device.Device, error) {
	return DeviceSpec{Kind: "sim", Options: s.Options}.New(capacity)
}
