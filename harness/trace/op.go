package trace

import (
	"math"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Kind is what an operation does.
type Kind uint8

// The operations of format version 1. New kinds are added at the end; the order is part of no file.
const (
	Alloc Kind = iota
	Free
	Record
	Sync
	EmptyCache
	Conf
	Fraction
	Foreign
	Segment
	Block
	PoolBegin
	PoolEnd
	PoolRelease
	Use
)

// kindCount is how many kinds there are.
const kindCount = int(Use) + 1

// kindWords are the words of the text format.
var kindWords = [kindCount]string{"alloc", "free", "record", "sync", "empty_cache", "conf", "fraction", "foreign", "segment", "block",
	"pool begin", "pool end", "pool release", "use"}

// kindUsage says how a line of each kind is written; error hints show it.
var kindUsage = [kindCount]string{
	Alloc:       "alloc <id> <bytes> [stream=<n>]",
	Free:        "free <id>",
	Record:      "record <id> stream=<n>",
	Sync:        "sync [stream=<n>]",
	EmptyCache:  "empty_cache [pool=<pool>]",
	Conf:        "conf <settings>",
	Fraction:    "fraction <f>",
	Foreign:     "foreign <bytes>",
	Segment:     "segment <sid> <bytes> stream=<n> pool=small|large [expandable [at=<sid>+<offset>]] [private=<pool>]",
	Block:       "block <id> <bytes> requested=<n> at=<sid>+<offset>",
	PoolBegin:   "pool begin <pool> [stream=<n>] [capture]",
	PoolEnd:     "pool end <pool>",
	PoolRelease: "pool release <pool>",
	Use:         "use <id> stream=<n>",
}

// String returns the word of the text format: alloc, free, record, sync, empty_cache, conf, fraction, foreign,
// segment, block, pool begin, pool end, pool release or use.
func (k Kind) String() string {
	if int(k) < kindCount {
		return kindWords[k]
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Limits of the format.
const (
	// AllStreams is the Stream of a Sync that waits for the whole device.
	AllStreams device.Stream = -1
	// MaxBytes is the largest size in a trace, 2^60 bytes.
	MaxBytes uint64 = allocators.MaxRequest
	// MaxID is the largest id, 2^63-1.
	MaxID uint64 = math.MaxInt64
	// MaxStream is the largest stream, 2^31-1.
	MaxStream device.Stream = math.MaxInt32
)

// Op is one operation. Fields that its kind does not use are zero: two operations are the same if and only if they are
// equal under ==.
type Op struct {
	Kind Kind
	// Small, Expandable and GoesOn are a Segment's: it is of the small pool; it is a mapped range of an expandable segment; it
	// lies in the address range of segment Base, at Offset.
	Small, Expandable, GoesOn bool
	// Capture is a PoolBegin's: a CUDA graph is captured into the pool.
	Capture bool
	// Pool is the private pool of the operations on one, 1..MaxPool; of an EmptyCache or a Segment 0 if none is meant.
	Pool allocators.PoolID
	// Stream is used by Alloc, Record, Use, Segment (0..MaxStream), Sync and PoolBegin (also AllStreams).
	Stream device.Stream
	// ID names the allocation in Alloc, Free, Record, Use and Block, 0..MaxID; in Segment the segment, which is another name space.
	ID uint64
	// Bytes is the size of an Alloc or a Foreign, 0..MaxBytes; of a Segment or a Block, a positive multiple of StartGrain.
	Bytes uint64
	// Requested is the bytes that were asked for of a Block, 1..Bytes.
	Requested uint64
	// Base and Offset say where a Block lies, or a Segment that GoesOn: in segment Base, Offset bytes from its start, a multiple of
	// StartGrain.
	Base, Offset uint64
	// Fraction is the memory fraction of a Fraction, 0..1.
	Fraction float64
	// Conf is the settings of a Conf: not empty, one line, no comment in it, no space around it.
	Conf string
}

// String returns the canonical line, without its line end.
func (o Op) String() string { return string(Append(nil, o)) }

// Append appends the canonical line of op, without its line end, to dst.
func Append(dst []byte, op Op) []byte {
	dst = append(dst, op.Kind.String()...)
	switch op.Kind {
	case Alloc:
		dst = appendUint(dst, op.ID)
		dst = appendUint(dst, op.Bytes)
		if op.Stream != 0 {
			dst = appendStream(dst, op.Stream)
		}
	case Free:
		dst = appendUint(dst, op.ID)
	case Record, Use:
		dst = appendUint(dst, op.ID)
		dst = appendStream(dst, op.Stream)
	case Sync:
		if op.Stream != AllStreams {
			dst = appendStream(dst, op.Stream)
		}
	case Conf:
		dst = append(dst, ' ')
		dst = append(dst, op.Conf...)
	case Fraction:
		dst = append(dst, ' ')
		dst = appendFraction(dst, op.Fraction)
	case Foreign:
		dst = appendUint(dst, op.Bytes)
	case EmptyCache:
		if op.Pool != 0 {
			dst = appendPoolID(dst, " pool=", op.Pool)
		}
	case Segment, Block:
		dst = appendStart(dst, &op)
	case PoolBegin, PoolEnd, PoolRelease:
		dst = appendPool(dst, &op)
	}
	return dst
}

func appendUint(dst []byte, n uint64) []byte {
	return strconv.AppendUint(append(dst, ' '), n, 10)
}

func appendStream(dst []byte, s device.Stream) []byte {
	return strconv.AppendInt(append(dst, " stream="...), int64(s), 10)
}

// appendFraction writes the shortest decimal that reads back as the same number.
func appendFraction(dst []byte, f float64) []byte {
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
