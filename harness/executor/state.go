package executor

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/shadow"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Outcome is what became of an operation.
type Outcome uint8

// The outcomes, as history rows have them.
const (
	OK Outcome = iota
	OOM
	Skip // free or record of an id whose alloc was refused
	Failed
	Unsupported // the allocator cannot do it, or not now; it is no fault
)

// String returns the word of history rows.
func (o Outcome) String() string { return [...]string{"ok", "oom", "skip", "error", "unsupported"}[o] }

// State is what a property sees. It belongs to the run; nothing of it may be kept or changed.
type State struct {
	// Op is the operation just executed, Operation what it was.
	Op        int
	Operation *trace.Op
	Outcome   Outcome
	// Block is the block concerned: what Alloc returned, what Free or Record was given; zero if none.
	Block allocators.Block
	// Entry is the shadow's entry of a successful alloc.
	Entry *shadow.Entry
	// Overlapped is what the new block overlaps, if it does.
	Overlapped *shadow.Entry

	// Queued is freed memory that the new block lies on although work on another stream still uses it. Unmapped is freed memory that
	// was unmapped although queued work still uses it.
	Queued, Unmapped *shadow.Hazard

	// Pool is the private pool that an alloc's request was sent to, 0 for the default one; Open are the open redirections, PoolUses the
	// uses of each pool, HasPools says that the allocator has any.
	Pool     allocators.PoolID
	Open     []allocators.Redirection
	PoolUses map[allocators.PoolID]int
	HasPools bool
	// Held says that an open pool holds back frees with uses on other streams, and the release of the cache.
	Held bool
	// Robbed is a region of a private pool in use from which memory was returned in an operation that was not sent to that pool.
	Robbed *Region

	// Heap is the shadow heap.
	Heap *shadow.Heap
	// Region is the device region that holds the block of an alloc; nil if it lies in none.
	Region *Region
	// Covered says that all of the block lies on memory.
	Covered bool
	// Calls are the device calls that the operation made.
	Calls []device.Call
	// DeviceFree and Capacity are the device's, in bytes; Foreign is what others hold of it.
	DeviceFree, Capacity, Foreign uint64
	// ReservedBefore is the allocator's reserved bytes before the operation.
	ReservedBefore uint64

	// Stats are the allocator's counters, nil if it keeps none.
	Stats *allocators.Stats
	// Touched is what the operation changed, nil if the allocator does not tell.
	Touched []allocators.Neighbourhood
	// Snapshot is what the allocator says of its state; in walks only, nil if it does not tell.
	Snapshot *allocators.Snapshot
	// View is the same as the harness knows it; in walks and for the judge.
	View *View
	// Entered is the view before the operation, finished work noticed: of a refused alloc, for the judge; of a served one where
	// the run took one (see Run.enter), else nil.
	Entered *View
	// PendingDone says that all pending frees are known to have been completed by the operation (it emptied the cache or
	// gave up after a full flush).
	PendingDone bool
	// KnowsStreams says that the allocator can be told of uses on streams; one that cannot does not tell streams apart.
	KnowsStreams bool
	// Empties says that the allocator can empty its cache.
	Empties bool
	// Unsized says that the allocator does not tell the sizes of its blocks: those of the harness are what was asked for.
	Unsized bool
	// Repetition is what the refused request would come to, made again unchanged, where the allocator tells; for the judge only.
	Repetition Repetition
	// Bought counts the mallocs and the ranges of pages mapped since the allocator was made, Returned the regions freed and the
	// ranges unmapped, OOMs the refusals.
	Bought, Returned, OOMs uint64
	// UnretriedOOMs are the refusals before which no retry came: while an open pool held releases back, and of segments to start from.
	UnretriedOOMs uint64
	// Reconfigured says that settings or the memory fraction were changed in mid-run.
	Reconfigured bool
	// Faulty says that the device fails calls by a plan.
	Faulty bool
	// Previous are the counters at the last walk.
	Previous *allocators.Stats
	// Promise is what the allocator declares.
	Promise allocators.Promise
	// Reserves says that the allocator has reserved address space. AtStart is the bytes that it took from the device when it was made,
	// BoughtAtStart what Bought was then.
	Reserves      bool
	AtStart       uint64
	BoughtAtStart uint64
	// Ranges counts the address ranges that are still reserved and once had memory; at the end of a run only.
	Ranges int
}
