package hostvmm

import (
	"errors"
	"fmt"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// host is what a device holds of the system: a memory file and address space.
type host struct {
	fd     int
	end    int64 // first unused offset; offsets are never used again, so fresh memory reads as zeros
	arenas []arena
	areas  int64 // of package count areas
	closed bool
}

// arena is PROT_NONE address space with what is taken of it, by address.
type arena struct {
	base, size uint64
	used       []span
}

type span struct {
	addr, size uint64
}

// fileSize is far beyond what any device takes; the file is sparse, so it costs nothing.
const fileSize = 1 << 62

func openHost() (*host, error) {
	fd, err := unix.MemfdCreate("shatter-hostvmm", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory file: %w: %w", err, device.ErrEnvironment)
	}
	if err := unix.Ftruncate(fd, fileSize); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("memory file of %d bytes: %w: %w", int64(fileSize), err, device.ErrEnvironment)
	}
	return &host{fd: fd}, nil
}

// close gives everything back to the system.
func (h *host) close() error {
	if h.closed {
		return nil
	}
	h.closed = true
	var errs []error
	for i := range h.arenas {
		errs = append(errs, unix.MunmapPtr(pointer(h.arenas[i].base), uintptr(h.arenas[i].size)))
	}
	areas.Add(-h.areas)
	return errors.Join(append(errs, unix.Close(h.fd))...)
}

// pointer makes a pointer of an address that the Go runtime does not know; a plain conversion is what vet warns of.
func pointer(a uint64) unsafe.Pointer {
	p := uintptr(a)
	return *(*unsafe.Pointer)(unsafe.Pointer(&p))
}

const hole = unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_NORESERVE

// addArena reserves address space, aligned to the granule.
func (h *host) addArena(size uint64) error {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+Granule), unix.PROT_NONE, hole)
	if err != nil {
		return fmt.Errorf("address space of %d bytes: %w: %w", size, err, device.ErrEnvironment)
	}
	raw := uint64(uintptr(p))
	base := (raw + Granule - 1) &^ (Granule - 1)
	if base > raw {
		err = unix.MunmapPtr(pointer(raw), uintptr(base-raw))
	}
	if tail := raw + Granule - base; tail > 0 && err == nil {
		err = unix.MunmapPtr(pointer(base+size), uintptr(tail))
	}
	if err != nil {
		return fmt.Errorf("trimming address space: %w: %w", err, device.ErrEnvironment)
	}
	h.arenas = append(h.arenas, arena{base: base, size: size})
	return nil
}

// show maps a range of the file at addr, over the hole.
func (h *host) show(addr, size uint64, offset int64) error {
	_, err := unix.MmapPtr(h.fd, offset, pointer(addr), uintptr(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("mapping %d bytes at %#x: %w: %w", size, addr, err, device.ErrEnvironment)
	}
	return nil
}

// hide puts the hole back. munmap would give the address away to others.
func (h *host) hide(addr, size uint64) error {
	if _, err := unix.MmapPtr(-1, 0, pointer(addr), uintptr(size), unix.PROT_NONE, hole|unix.MAP_FIXED); err != nil {
		return fmt.Errorf("unmapping %d bytes at %#x: %w: %w", size, addr, err, device.ErrEnvironment)
	}
	return nil
}

// discard frees the memory of a range of the file.
func (h *host) discard(offset int64, size uint64) error {
	err := unix.Fallocate(h.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, int64(size))
	if err != nil {
		return fmt.Errorf("returning %d bytes to the system: %w: %w", size, err, device.ErrEnvironment)
	}
	return nil
}

// take returns the lowest free place in the arena, 0 if there is none.
func (a *arena) take(size uint64) uint64 {
	at, i := a.base, 0
	for ; i < len(a.used) && a.used[i].addr-at < size; i++ {
		at = a.used[i].addr + a.used[i].size
	}
	if i == len(a.used) && a.base+a.size-at < size {
		return 0
	}
	a.used = append(a.used, span{})
	copy(a.used[i+1:], a.used[i:])
	a.used[i] = span{at, size}
	return at
}

func (a *arena) give(addr uint64) {
	i := sort.Search(len(a.used), func(i int) bool { return a.used[i].addr >= addr })
	a.used = append(a.used[:i], a.used[i+1:]...)
}

// holds tells whether the whole range lies in the device's address space.
func (h *host) holds(addr, size uint64) bool {
	for i := range h.arenas {
		if a := &h.arenas[i]; addr >= a.base && addr-a.base <= a.size && size <= a.size-(addr-a.base) {
			return !h.closed
		}
	}
	return false
}
