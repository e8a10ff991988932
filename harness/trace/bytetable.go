package trace

import "github.com/shatter-gpu/shatter/allocators/device"

// Lead bytes. The canonical ones are all that Encode writes; they never move and never change their meaning, so stored
// inputs keep theirs. Everything from firstAlias on only makes arbitrary bytes livelier, and a new kind of operation may take
// an alias over.
const (
	leadAllocEdge      = 0x80 + iota // id, class, offset, stream
	leadAllocMiB                     // id, stream, MiB (6)
	leadAllocExact                   // id, stream, bytes (9)
	leadAllocFar                     // id (9), stream (5), bytes (9)
	leadFree                         // id
	leadFreeFar                      // id (9)
	leadRecord                       // id, stream
	leadRecordFar                    // id (9), stream (5)
	leadSyncAll                      // nothing
	leadSync                         // stream
	leadSyncFar                      // stream (5)
	leadEmptyCache                   // nothing
	leadConf                         // settings number
	leadConfText                     // check, text
	leadFraction                     // hundredths below 1
	leadFractionExact                // distance of the bits from those of 1 (9)
	leadForeignEdge                  // class, offset
	leadForeignExact                 // bytes (9)
	leadCapacity                     // pages of 2 MiB, less 32 (6), bytes above them (3)
	leadHeadConf                     // 0, or settings number + 1
	leadHeadConfText                 // check, text
	leadHeadFraction                 // as leadFraction
	leadHeadFractExact               // as leadFractionExact
	firstAlias                       // 0x97
)

// Aliases, by range. s is the offset in the range.
const (
	aliasRecord     = firstAlias          // 16: slot, stream; records small slots on streams 0..3; seven of them have another meaning, see below
	aliasSync       = aliasRecord + 16    // 12: the device, or stream 0..3, by s
	aliasEmptyCache = aliasSync + 12      // 3
	aliasCapacity   = aliasEmptyCache + 3 // 6: pages; capacities from 32 MiB to 1.3 GiB, by s
	aliasFree       = aliasCapacity + 6   // 4: slot
	aliasToggle     = aliasFree + 4       // 64: class, offset, stream; frees small slot s%32 if it is live, else allocates it
	aliasSlots      = 32                  // slots that aliases use
	aliasStreams    = 4                   // streams that aliases use
)

// The state to start from took over two aliases that meant sync, where a sync means nothing: before the first other operation.
// Behind it they are the aliases that they were.
const (
	leadSegment = aliasSync + 10 // id (9), bytes/512 (9), stream (5), flags, base (9), offset/512 (9), private pool (5)
	leadBlock   = aliasSync + 11 // id (9), base (9), bytes/512 (9), bytes not asked for (9), offset/512 (9)
)

// Queued work and private pools took over seven aliases that meant record.
const (
	leadUse         = aliasRecord + 9 + iota // id, stream
	leadUseFar                               // id (9), stream (5)
	leadPoolBegin                            // pool - 1, flags, stream
	leadPoolEnd                              // pool - 1
	leadPoolRelease                          // pool - 1
	leadPoolFar                              // begin, end or release: 0 to 2; pool - 1 (5), and of a begin flags, stream (5)
	leadEmptyPool                            // pool - 1 (5)
)

// How many 7-bit operands the long forms take.
const (
	idOperands     = 9 // 63 bits
	streamOperands = 5 // 35 bits
	poolOperands   = 5 // 35 bits
	sizeOperands   = 9 // 63 bits
	mibOperands    = 6 // 42 bits
	pageOperands   = 6 // 42 bits
	inPageOperands = 3 // 21 bits
	bitsOperands   = 9 // 63 bits
)

// The short form of an id: one operand below 120, or one from 120 on and a second one. It reaches past MaxDecodedOps, so a
// trace that numbers its allocations in order needs no long form.
const (
	idDirect = 120
	idShort  = idDirect + (128-idDirect)<<7 // 1144, the first id that needs the long form
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

// classEdges are the sizes around which allocators change their mind. Class 0 is what a missing operand means. They are
// the PyTorch allocator's thresholds (512 B quantum, 1 MiB small limit, 2 MiB small segment, 10 MiB and 20 MiB large
// segments), sizes that split or fill those segments, power-of-two divisions, and sizes that no device has. Positions never
// change.
var classEdges = [128]uint64{
	512, 1 * mib, 2 * mib, 10 * mib, 20 * mib, 1, 0, 256,
	1 * kib, 2 * kib, 4 * kib, 8 * kib, 16 * kib, 32 * kib, 64 * kib, 128 * kib,
	256 * kib, 512 * kib, 640 * kib, 768 * kib, 896 * kib, 1536 * kib, 3 * mib, 4 * mib,
	5 * mib, 6 * mib, 7 * mib, 8 * mib, 9 * mib, 11 * mib, 12 * mib, 14 * mib,
	16 * mib, 18 * mib, 19 * mib, 21 * mib, 22 * mib, 24 * mib, 26 * mib, 28 * mib,
	30 * mib, 32 * mib, 34 * mib, 36 * mib, 38 * mib, 40 * mib, 42 * mib, 44 * mib,
	48 * mib, 50 * mib, 52 * mib, 56 * mib, 60 * mib, 62 * mib, 64 * mib, 66 * mib,
	68 * mib, 72 * mib, 80 * mib, 96 * mib, 100 * mib, 112 * mib, 120 * mib, 128 * mib,
	140 * mib, 144 * mib, 160 * mib, 180 * mib, 192 * mib, 200 * mib, 220 * mib, 224 * mib,
	240 * mib, 256 * mib, 300 * mib, 320 * mib, 384 * mib, 400 * mib, 448 * mib, 500 * mib,
	512 * mib, 600 * mib, 640 * mib, 768 * mib, 800 * mib, 896 * mib, 1000 * mib, 1 * gib,
	1280 * mib, 1536 * mib, 1792 * mib, 2 * gib, 3 * gib, 4 * gib, 8 * gib, 16 * gib,
	24 * gib, 40 * gib, 64 * gib, 80 * gib, 1 * tib, 128 * tib, 1 << 59, 1 << 60,
	1536, 2560, 3 * kib, 5 * kib, 6 * kib, 10 * kib, 12 * kib, 20 * kib,
	24 * kib, 48 * kib, 96 * kib, 192 * kib, 320 * kib, 384 * kib, 448 * kib, 960 * kib,
	1280 * kib, 1792 * kib, 2560 * kib, 3584 * kib, 13 * mib, 15 * mib, 17 * mib, 25 * mib,
}

// classOffsets are distances from an edge. Operand 0 is none, 2k+1 and 2k+2 are entry k up and down; the last
// entry has room for up only. Positions never change.
var classOffsets = [64]uint64{
	1, 512, 511, 513, 2, 256, 255, 257,
	1024, 1023, 1025, 4, 8, 16, 32, 64,
	128, 384, 768, 1536, 2 * kib, 4 * kib, 8 * kib, 16 * kib,
	32 * kib, 64 * kib, 128 * kib, 256 * kib, 512 * kib, 1 * mib, 1*mib - 1, 1*mib + 1,
	1*mib - 512, 1*mib + 512, 2 * mib, 2*mib - 1, 2*mib + 1, 2*mib - 512, 2*mib + 512, 3 * mib,
	4 * mib, 5 * mib, 6 * mib, 8 * mib, 10 * mib, 10*mib - 1, 10*mib + 1, 10*mib - 512,
	10*mib + 512, 12 * mib, 14 * mib, 16 * mib, 18 * mib, 20 * mib, 20*mib - 1, 20*mib + 1,
	20*mib - 512, 20*mib + 512, 24 * mib, 32 * mib, 40 * mib, 64 * mib, 128 * mib, 256 * mib,
}

// commonConf are settings worth switching to. Entries are only ever appended, and there are never more than 127.
var commonConf = []string{
	"expandable_segments:True",
	"expandable_segments:False",
	"max_split_size_mb:21",
	"max_split_size_mb:128",
	"garbage_collection_threshold:0.6",
	"garbage_collection_threshold:0.8",
	"roundup_power2_divisions:4",
	"roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
	"max_split_size_mb:64,max_non_split_rounding_mb:40",
	"expandable_segments:True,max_split_size_mb:64",
	"expandable_segments:True,garbage_collection_threshold:0.6",
	"expandable_segments:True,roundup_power2_divisions:8",
	"max_split_size_mb:32,garbage_collection_threshold:0.7,roundup_power2_divisions:2",
	"roundup_power2_divisions:[1:4,2:8,4:2,8:16,>:1]",
	"max_split_size_mb:256",
	"max_split_size_mb:512",
}

// capacityBase is what a capacity counts from, in pages of 2 MiB: a missing operand means 64 MiB, small beside the sizes of
// classEdges, so that arbitrary bytes run out of memory.
const capacityBase = 32

// What the aliases stand for, by their offset in the range.
var (
	aliasSyncStream    = [12]device.Stream{AllStreams, 0, 1, 2, 3, AllStreams, 0, 1, 2, 3, AllStreams, AllStreams}
	aliasCapacityPages = [6]uint64{16, 24, 50, 100, 256, 512}
	// aliasToggleEdge is the size of an allocation that says none: small, large and split sizes in turn.
	aliasToggleEdge = [16]uint64{
		512, 1 * mib, 2 * mib, 8 * mib, 1*mib + 512, 20 * mib, 10 * mib, 4 * kib,
		12 * mib, 1*mib - 512, 6 * mib, 256 * kib, 24 * mib, 2*mib + 512, 10*mib - 512, 40 * mib,
	}
)

// classOfEdge finds the class of an edge.
var classOfEdge = indexEdges()

func indexEdges() map[uint64]byte {
	m := make(map[uint64]byte, len(classEdges))
	for class, edge := range classEdges {
		m[edge] = byte(class)
	}
	return m
}

// edgeOf finds the class and offset of a size; ok is false if no pair gives it. The smallest offset operand wins.
func edgeOf(bytes uint64) (class, offset byte, ok bool) {
	for code := byte(0); code < 128; code++ {
		// The edge that this offset would lead from; where there is none it wraps round to a size that is no edge, or that
		// the check refuses.
		edge := bytes
		if code > 0 {
			if d := classOffsets[(code-1)/2]; code%2 == 1 {
				edge -= d
			} else {
				edge += d
			}
		}
		if class, ok := classOfEdge[edge]; ok && applyDistance(edge, code) == bytes {
			return class, code, true
		}
	}
	return 0, 0, false
}

// applyDistance moves a size by an offset operand, or leaves it where the result would be no legal size.
func applyDistance(edge uint64, code byte) uint64 {
	if code == 0 {
		return edge
	}
	d := classOffsets[(code-1)/2]
	switch up := code%2 == 1; {
	case up && edge+d <= MaxBytes:
		return edge + d
	case !up && d <= edge:
		return edge - d
	}
	return edge
}
