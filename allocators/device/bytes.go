package device

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors of devices with real memory behind them.
var (
	// ErrFault: bytes were touched where no memory is mapped, as a kernel that does so gets an illegal-address error. It is a
	// mistake of whoever chose the address.
	ErrFault = errors.New("memory fault")
	// ErrEnvironment: the device cannot go on for a reason that is no allocator's mistake (a limit of the host, a sick card).
	ErrEnvironment = errors.New("device environment fault")
)

// Bytes is a device whose memory really holds bytes. Both calls act at once and see what was written before, whatever
// work is outstanding on streams.
type Bytes interface {
	// Fill writes size bytes at addr: the little-endian 8-byte word number i, from 0, is seed + i; a rest of less than 8
	// bytes has the first bytes of its word. ErrFault if not all of it is mapped; part of it may then be written.
	Fill(addr Addr, size, seed uint64) error
	// Verify compares size bytes at addr with what Fill wrote with this seed. ok is false if a byte differs; m is the first
	// word that does. ErrFault if not all of it is mapped.
	Verify(addr Addr, size, seed uint64) (m Mismatch, ok bool, err error)
}

// Mismatch is a word that does not hold what was filled in.
type Mismatch struct {
	// Offset in bytes from the address that was verified.
	Offset uint64
	// Want and Got are the words; of a rest of less than 8 bytes only the first bytes count, the others are 0.
	Want, Got uint64
}

// PutPattern writes what Fill puts into memory.
func PutPattern(p []byte, seed uint64) {
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, seed)
		seed++
	}
	for i := range p {
		p[i] = byte(seed >> (8 * i))
	}
}

// CheckPattern compares bytes with what Fill puts there.
func CheckPattern(p []byte, seed uint64) (m Mismatch, ok bool) {
	var off uint64
	for ; len(p) >= 8; p = p[8:] {
		if got := binary.LittleEndian.Uint64(p); got != seed {
			return Mismatch{off, seed, got}, false
		}
		seed++
		off += 8
	}
	var got, mask uint64
	for i, b := range p {
		got |= uint64(b) << (8 * i)
		mask |= 0xff << (8 * i)
	}
	if got != seed&mask {
		return Mismatch{off, seed & mask, got}, false
	}
	return Mismatch{}, true
}

// Fault makes an ErrFault that says where.
func Fault(addr Addr, size uint64, at Addr) error {
	return fmt.Errorf("%d bytes at %#x touch %#x, where no memory is mapped: %w", size, uint64(addr), uint64(at), ErrFault)
}
