package executor

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
)

// Target is an allocator under test.
type Target struct {
	// Name is what reports call it.
	Name string
	// New makes the allocator on an empty device.
	New func(device.Device) (allocators.Allocator, error)
}

// Options of a run.
type Options struct {
	// Device is the device, empty and not used before.
	Device device.Device
	// Properties are checked; none means that nothing is.
	Properties []Property
	// Judge decides what each refusal was; nil leaves them unjudged.
	Judge Judge
	// OnRow is called with a history row after every operation of the trace; the row is valid during the call.
	OnRow func(*Row)
	// Faults make the device fail calls of the allocator; what must hold then is property FaultRecovery. Nil for none.
	Faults faultdev.Plan
	// Verify says how much of each live block's bytes is written and compared, on a device that has bytes (property
	// DataIntegrity).
	Verify Verify
}
