//go:build cuda

package cudadev

import (
	"unsafe"

	"gorgonia.org/cu"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// stagingSize is how much is copied at a time: a multiple of 8, so that every part begins with a whole word.
const stagingSize = 4 << 20

// Fill implements device.Bytes.
func (d *Device) Fill(addr device.Addr, size, seed uint64) error {
	return d.each(addr, size, func(at device.Addr, p []byte, word uint64) (bool, error) {
		device.PutPattern(p, seed+word)
		err := cu.MemcpyHtoD(cu.DevicePtr(at), unsafe.Pointer(&p[0]), int64(len(p)))
		return err == nil, translate("cuMemcpyHtoD", err)
	})
}

// Verify implements device.Bytes.
func (d *Device) Verify(addr device.Addr, size, seed uint64) (m device.Mismatch, ok bool, err error) {
	ok = true
	err = d.each(addr, size, func(at device.Addr, p []byte, word uint64) (bool, error) {
		if err := cu.MemcpyDtoH(unsafe.Pointer(&p[0]), cu.DevicePtr(at), int64(len(p))); err != nil {
			return false, translate("cuMemcpyDtoH", err)
		}
		if m, ok = device.CheckPattern(p, seed+word); !ok {
			m.Offset += word * 8
		}
		return ok, nil
	})
	return m, ok && err == nil, err
}

// each goes through a range part by part, with a buffer for the part and the number of its first word, until do says stop. What
// is not mapped is refused before the device is touched: an illegal access would end the context.
func (d *Device) each(addr device.Addr, size uint64, do func(at device.Addr, p []byte, word uint64) (bool, error)) error {
	if at, ok := d.live.uncovered(addr, size); !ok {
		return device.Fault(addr, size, at)
	}
	if d.closed {
		return device.Fault(addr, size, addr)
	}
	if d.staging == nil {
		d.staging = make([]byte, stagingSize)
	}
	defer d.bind()()
	for off := uint64(0); off < size; off += stagingSize {
		p := d.staging[:min(stagingSize, size-off)]
		if more, err := do(addr+device.Addr(off), p, off/8); err != nil || !more {
			return err
		}
	}
	return nil
}
