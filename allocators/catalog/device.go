package catalog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// DeviceSpec is a device to run on.
type DeviceSpec struct {
	// Name is the text that ParseDevice was given.
	Name string
	// Capacity in bytes; 0 if the text gave none.
	Capacity uint64
	// Options of the simulated device, without capacity.
	Options simdev.Options
}

// Devices are the kinds of device, as they are listed.
var Devices = []Entry{
	{"sim", "sim[:SIZE][,addr=bump|low|random:SEED]: simulated GPU, byte-counted, deterministic, 2 MiB to 16 TiB", true},
}

// ParseDevice reads KIND[:SIZE][,OPTION]. size parses a size such as 80GiB.
func ParseDevice(text string, size func(string) (uint64, error)) (DeviceSpec, error) {
	s := DeviceSpec{Name: text}
	head, options, _ := strings.Cut(text, ",")
	kind, capacity, sized := strings.Cut(head, ":")
	if kind != "sim" {
		return s, fmt.Errorf("unknown device %q; this version has sim, as in sim:80GiB (see shatter list devices)", text)
	}
	if sized {
		var err error
		if s.Capacity, err = size(capacity); err != nil {
			return s, fmt.Errorf("device %q: %w", text, err)
		}
		if err := CheckCapacity(s.Capacity); err != nil {
			return s, fmt.Errorf("device %q: %w", text, err)
		}
	}
	if options == "" {
		return s, nil
	}
	order, ok := strings.CutPrefix(options, "addr=")
	if !ok {
		return s, fmt.Errorf("device %q: unknown option %q; there is addr=bump, addr=low and addr=random:SEED", text, options)
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
			return s, fmt.Errorf("device %q: the seed %q is not a number", text, seed)
		}
		s.Options.Order, s.Options.Seed = simdev.Random, n
	default:
		return s, fmt.Errorf("device %q: unknown address order %q; write addr=bump, addr=low or addr=random:SEED", text, order)
	}
	return s, nil
}

// CheckCapacity tells whether a simulated device can have this many bytes.
func CheckCapacity(bytes uint64) error {
	if bytes < simdev.MinCapacity || bytes > simdev.MaxCapacity {
		return fmt.Errorf("a device of %d bytes: a simulated device has 2 MiB to 16 TiB; write for example 80GiB", bytes)
	}
	return nil
}

// New makes the device, empty.
func (s DeviceSpec) New(capacity uint64) (device.Device, error) {
	o := s.Options
	o.Capacity = capacity
	return simdev.New(o)
}
