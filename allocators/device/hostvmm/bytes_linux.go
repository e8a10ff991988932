package hostvmm

import (
	"runtime/debug"
	"unsafe"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Fill implements device.Bytes.
func (d *Device) Fill(addr device.Addr, size, seed uint64) (err error) {
	if err := d.reachable(addr, size); err != nil || size == 0 {
		return err
	}
	defer catch(addr, size, &err)()
	device.PutPattern(view(addr, size), seed)
	return nil
}

// Verify implements device.Bytes.
func (d *Device) Verify(addr device.Addr, size, seed uint64) (m device.Mismatch, ok bool, err error) {
	if err := d.reachable(addr, size); err != nil || size == 0 {
		return m, err == nil, err
	}
	defer catch(addr, size, &err)()
	m, ok = device.CheckPattern(view(addr, size), seed)
	return m, ok, nil
}

// reachable keeps wild addresses away from the rest of the process. Inside the device's address space the kernel tells what
// is mapped.
func (d *Device) reachable(addr device.Addr, size uint64) error {
	if !d.host.holds(uint64(addr), size) {
		return device.Fault(addr, size, addr)
	}
	return nil
}

func view(addr device.Addr, size uint64) []byte {
	return unsafe.Slice((*byte)(pointer(uint64(addr))), size)
}

// catch makes memory faults of this goroutine panics until the function that it returns runs, deferred, which turns such a
// panic into an error.
func catch(addr device.Addr, size uint64, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			*err = device.Fault(addr, size, device.Addr(r.Addr()))
		default:
			panic(r)
		}
	}
}
