package snapshot

import (
	"iter"
	"strconv"
)

// Action is what a history entry records.
type Action uint8

// The actions of PyTorch, and Other for what this version does not know.
const (
	Other Action = iota
	Alloc
	FreeRequested
	FreeCompleted
	SegmentAlloc
	SegmentFree
	SegmentMap
	SegmentUnmap
	OOM
	Taken // a snapshot was taken
)

var actionNames = [...]string{
	"other", "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot",
}

// String returns PyTorch's word.
func (a Action) String() string { return actionNames[a] }

// Event is an entry of a device's history.
type Event struct {
	// Addr is the address; of an OOM the bytes that were free at the device.
	Addr uint64
	// Size in bytes: requested ones of alloc and free_*, the rounded request of an OOM, else those of the segment or range.
	Size uint64
	// Stream is the raw stream handle.
	Stream uint64
	// TimeUS is microseconds since 1970; 0 if not recorded.
	TimeUS int64
	// Stack is a number for Snapshot.Frames, 0 if none was recorded.
	Stack uint32
	// Pool is an index of Snapshot.Pools, 0 for the default pool or where it is not recorded.
	Pool   uint32
	Action Action
}

// Frame is a line of a stack.
type Frame struct {
	File string
	Line int
	Name string // of the function
}

// Pool names a private pool: of a CUDA graph or of the user. The zero Pool is the default one.
type Pool struct{ Graph, User uint64 }

// BlockState is what a block is in.
type BlockState uint8

// The states.
const (
	Inactive BlockState = iota
	Live
	Pending // freed, with uses on other streams outstanding
)

var stateNames = [...]string{"inactive", "active_allocated", "active_pending_free"}

// String returns PyTorch's word.
func (s BlockState) String() string { return stateNames[s] }

// Block is a part of a segment.
type Block struct {
	Addr, Size uint64
	// Requested is meaningful for live and pending blocks.
	Requested uint64
	Stack     uint32
	State     BlockState
}

// Segment is a region of cudaMalloc, or a contiguous mapped range of an expandable segment.
type Segment struct {
	Device     int
	Addr, Size uint64
	Stream     uint64 // raw handle
	Small      bool   // of the small pool
	Pool       Pool
	Expandable bool
	Stack      uint32
	Blocks     []Block
}

// Annotation is the begin or end of a scope that the program named.
type Annotation struct {
	Name   string
	End    bool
	Device int
	TimeUS int64
}

// Settings are the allocator's at the time of the snapshot.
type Settings struct {
	// Recorded says that the file has them; PyTorch 2.0 wrote none.
	Recorded bool
	// Conf is the last settings string that was parsed.
	Conf string
	// MaxSplit is max_split_size in bytes, -1 if off.
	MaxSplit    int64
	GCThreshold float64
	Expandable  bool
	// Divisions of roundup_power2_divisions by bucket.
	Divisions [16]uint64
}

// Snapshot is a file.
type Snapshot struct {
	// Name is the file's.
	Name string
	// Bytes is the size of the pickle.
	Bytes int64
	// Shape is the version of PyTorch whose format it is, as far as its keys tell: "2.0", "2.4", "2.6", "2.9", "2.10", "2.12".
	Shape    string
	Settings Settings
	Segments []Segment
	// Traces are the histories by device, oldest entry first.
	Traces      [][]Event
	Annotations []Annotation
	Pools       []Pool
	// Overflowed says that the file itself tells of lost entries (2026 versions).
	Overflowed bool

	frames []Frame
	refs   []uint32
	spans  []list
	// frameOf finds equal frames for AddStack.
	frameOf map[Frame]uint32
}

// Frames are the frames of a stack, innermost first.
func (s *Snapshot) Frames(stack uint32) iter.Seq[*Frame] {
	return func(yield func(*Frame) bool) {
		if stack == 0 || int(stack) > len(s.spans) {
			return
		}
		l := s.spans[stack-1]
		if l.kind != listStack {
			return
		}
		for _, r := range s.refs[l.start : l.start+l.n] {
			if !yield(&s.frames[r]) {
				return
			}
		}
	}
}

// AddStack enters a stack, innermost frame first, and returns its number; 0 for no frames.
func (s *Snapshot) AddStack(frames []Frame) uint32 {
	if len(frames) == 0 {
		return 0
	}
	l := list{listStack, uint32(len(s.refs)), uint32(len(frames))}
	if s.frameOf == nil {
		s.frameOf = make(map[Frame]uint32, len(s.frames))
		for i, f := range s.frames {
			s.frameOf[f] = uint32(i)
		}
	}
	for _, f := range frames {
		n, ok := s.frameOf[f]
		if !ok {
			n = uint32(len(s.frames))
			s.frames = append(s.frames, f)
			s.frameOf[f] = n
		}
		s.refs = append(s.refs, n)
	}
	s.spans = append(s.spans, l)
	return uint32(len(s.spans))
}

// Events is how many history entries there are.
func (s *Snapshot) Events() int {
	n := 0
	for _, t := range s.Traces {
		n += len(t)
	}
	return n
}

func quoted(s string) string { return strconv.Quote(s[:min(len(s), 40)]) }
