package executor

import (
	"errors"
	"fmt"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// DataIntegrity is the property that bytes check: a live block holds what was written into it until it is freed, whatever
// else is allocated, freed, mapped or unmapped. It needs no shadow heap and sees what addresses cannot show: two mappings of
// one page, a page that is gone.
const DataIntegrity = "data-integrity"

// Verify says how much of each live block is written and compared.
type Verify uint8

const (
	// VerifyOff touches no bytes.
	VerifyOff Verify = iota
	// VerifyStamps touches the first and the last 512 bytes, 64 bytes on either side of page edges (of at most 32 edges, spread
	// over the block), and two places inside. An overlap at the end of a block is always seen, one inside only by chance.
	VerifyStamps
	// VerifyFull touches every byte.
	VerifyFull
)

// The sizes of stamps, in bytes. An end is as long as the smallest block, so that blocks which overlap at all at their ends
// overlap in a stamp.
const (
	endStamp    = 512
	insideStamp = 64
	maxEdges    = 32
	samples     = 2
)

// stampPage is what every page size of a device is a multiple of; a stamp that is no edge of a larger page does no harm.
const stampPage = 2 << 20

// A word of a block is its identity above wordBits and its place in the block below: blocks of up to 512 GiB, 2^28 operations.
const wordBits = 36

// stamper writes the identities of blocks into their memory and compares them.
type stamper struct {
	mem   device.Bytes
	full  bool
	op    []int // by slot: operation that allocated the block
	spans []stampSpan
	// Compared is how many bytes were compared.
	compared uint64
}

type stampSpan struct{ off, size uint64 }

func newStamper(v Verify, d device.Device, slots int) (*stamper, error) {
	if v == VerifyOff {
		return nil, nil
	}
	mem, ok := d.(device.Bytes)
	if !ok {
		return nil, fmt.Errorf("%w: bytes are to be verified on a device that holds none", ErrHarness)
	}
	return &stamper{mem: mem, full: v == VerifyFull, op: make([]int, slots)}, nil
}

// word is the seed of the pattern of a block of this operation, from this offset on.
func word(op int, off uint64) uint64 { return uint64(op+1)<<wordBits + off/8 }

// places lists what is stamped of a block; every offset is a multiple of 8.
func (t *stamper) places(addr device.Addr, size uint64, op int) []stampSpan {
	t.spans = t.spans[:0]
	if t.full || size <= 2*endStamp {
		return append(t.spans, stampSpan{0, size})
	}
	last := (size - endStamp) &^ 7
	t.spans = append(t.spans, stampSpan{0, endStamp}, stampSpan{last, size - last})
	first := stampPage - uint64(addr)%stampPage // offset of the first edge
	if size > first && addr%8 == 0 {
		edges := (size - first + stampPage - 1) / stampPage
		stride := (edges + maxEdges - 1) / maxEdges
		for e := uint64(op) % stride; e < edges; e += stride {
			at := first + e*stampPage
			from := at - min(at, insideStamp)
			t.spans = append(t.spans, stampSpan{from, min(at+insideStamp, size) - from})
		}
	}
	h := uint64(op+1) * 0x9e3779b97f4a7c15 // spreads the samples of successive blocks
	for range samples {
		t.spans = append(t.spans, stampSpan{h % (size - insideStamp) &^ 7, insideStamp})
		h *= 0x9e3779b97f4a7c15
	}
	return t.spans
}

// write stamps a new block.
func (t *stamper) write(addr device.Addr, size uint64, op int) error {
	for _, p := range t.places(addr, size, op) {
		if err := t.mem.Fill(addr+device.Addr(p.off), p.size, word(op, p.off)); err != nil {
			return err
		}
	}
	return nil
}

// compare returns the first word of a block that is not what was written.
func (t *stamper) compare(addr device.Addr, size uint64, op int) (m device.Mismatch, same bool, err error) {
	for _, p := range t.places(addr, size, op) {
		m, same, err = t.mem.Verify(addr+device.Addr(p.off), p.size, word(op, p.off))
		if err != nil || !same {
			m.Offset += p.off
			return m, same, err
		}
		t.compared += p.size
	}
	return m, true, nil
}

// stamp writes into the block that the operation allocated, and compares all blocks once it emptied the cache.
func (r *Run) stamp(s *step) error {
	switch {
	case s.kind == trace.Alloc && s.bytes > 0:
		sl := &r.slots[s.slot]
		r.stamps.op[s.slot] = r.next
		return r.stampError(r.stamps.write(sl.block.Addr, sl.block.Size, r.next), s.slot)
	case s.kind == trace.EmptyCache:
		return r.checkAllStamps()
	}
	return nil
}

// checkStamps compares the block of a slot.
func (r *Run) checkStamps(slot int32) error {
	sl, op := &r.slots[slot], r.stamps.op[slot]
	m, same, err := r.stamps.compare(sl.block.Addr, sl.block.Size, op)
	if err != nil || same {
		return r.stampError(err, slot)
	}
	r.find(DataIntegrity, "corrupted", fmt.Sprintf("byte %d of the block of operation %d (%d bytes at %#x) is %s",
		m.Offset, op, sl.block.Size, uint64(sl.block.Addr), r.whose(m.Got)))
	return nil
}

// checkAllStamps compares every live block, in order of the slots, up to the first that is not as it was.
func (r *Run) checkAllStamps() error {
	for i := range r.slots {
		if r.slots[i].status != slotLive {
			continue
		}
		if err := r.checkStamps(int32(i)); err != nil || r.stopped {
			return err
		}
	}
	return nil
}

// stampError makes a finding of a fault on a live block; anything else is a fault of the harness.
func (r *Run) stampError(err error, slot int32) error {
	if err == nil {
		return nil
	}
	if !errors.Is(err, device.ErrFault) {
		if r.next >= len(r.prog.steps) {
			return r.endFault(err)
		}
		return r.at(err)
	}
	sl := &r.slots[slot]
	r.find(DataIntegrity, "unmapped", fmt.Sprintf("the block of operation %d (%d bytes at %#x) is live and not all of it has memory: %v",
		r.stamps.op[slot], sl.block.Size, uint64(sl.block.Addr), err))
	return nil
}

// whose says where a word comes from.
func (r *Run) whose(word uint64) string {
	op, off := int(word>>wordBits)-1, word&(1<<wordBits-1)*8
	switch {
	case word == 0:
		return "zero: the page is not the one that was written, or was cleared"
	case op >= 0 && op < len(r.prog.Trace.Ops) && r.prog.Trace.Ops[op].Kind == trace.Alloc:
		return fmt.Sprintf("byte %d of the block of operation %d", off, op)
	}
	return fmt.Sprintf("of the word %#x, which no block was given", word)
}
