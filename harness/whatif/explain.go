package whatif

import (
	"context"
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Case is a history to be explained: a trace with what it runs on and what is known of where it came from.
type Case struct {
	Trace     *trace.Trace
	Target    executor.Target
	NewDevice measure.NewDevice
	// Capacity in bytes is what the allocator could take of the device; 0 if not known.
	Capacity uint64
	// Total in bytes is the device's memory; 0 if not known.
	Total uint64
	// Site names the call site of the allocation that an operation made; nil if none is known.
	Site func(op int) string
	// Time is when an operation happened, in microseconds, 0 if that is not known; nil if no times are.
	Time func(op int) int64
	// NewJudge makes a judge of refusals.
	NewJudge func() executor.Judge

	prog *executor.Program
}

func (c *Case) program() *executor.Program {
	if c.prog == nil {
		c.prog = executor.Compile(c.Trace)
	}
	return c.prog
}

func (c *Case) requested(op int) uint64 {
	if o := &c.Trace.Ops[op]; o.Kind == trace.Block {
		return o.Requested
	} else {
		return o.Bytes
	}
}

// site names a call site; without one, allocations of the same size are taken together.
func (c *Case) site(op int) string {
	if c.Site != nil {
		if s := c.Site(op); s != "" {
			return s
		}
	}
	when := ""
	if c.Trace.Ops[op].Kind == trace.Block {
		when = ", from before the recording"
	}
	return fmt.Sprintf("(no stack recorded) requests of %s%s", trace.FormatSize(c.requested(op)), when)
}

func (c *Case) age(op, at int) int64 {
	if c.Time != nil {
		if a, b := c.Time(op), c.Time(at); a > 0 && b >= a {
			return b - a
		}
		return 0
	}
	return int64(at - op)
}

// Bar is the device's memory at a moment; what is known of it sums up to Total.
type Bar struct {
	// Live is the requested bytes of live blocks, Rounding what they have above it.
	Live       uint64 `json:"live"`
	Rounding   uint64 `json:"rounding"`
	Pinned     uint64 `json:"pinned"`
	Releasable uint64 `json:"releasable"`
	Reserved   uint64 `json:"reserved"` // the sum of these four
	DeviceFree uint64 `json:"device_free"`
	// FreeKnown says that DeviceFree is known, OutsideKnown that Outside (others on the device) and Total are.
	FreeKnown    bool   `json:"device_free_known"`
	Outside      uint64 `json:"outside"`
	OutsideKnown bool   `json:"outside_known"`
	Total        uint64 `json:"total"`
	// Pending is the bytes of blocks that wait for other streams; they are part of Pinned and Releasable.
	Pending uint64 `json:"pending"`
}

// StreamTotal is what a stream's segments hold.
type StreamTotal struct {
	Stream   int    `json:"stream"`
	Reserved uint64 `json:"reserved"`
	Live     uint64 `json:"live"`
	Pending  uint64 `json:"pending"`
}

// Moment is the state at an operation, after it.
type Moment struct {
	Op        int    `json:"op"`
	Operation string `json:"operation"`
	// Refusal is what was refused there; nil if nothing was.
	Refusal *executor.Judgement `json:"-"`
	Bar     Bar                 `json:"bar"`
	Pins    []SitePins          `json:"pins"`
	// Groups are the groups that pin most.
	Groups []Group `json:"groups"`
	// PinningBlocks is how many live blocks are in a group.
	PinningBlocks int           `json:"pinning_blocks"`
	Streams       []StreamTotal `json:"streams"`
}

// Explanation is what happened.
type Explanation struct {
	// Moments are the refusals, at most maxMoments of them, or the worst moment if there is none.
	Moments []Moment `json:"moments"`
	// Refusals is how many requests were refused.
	Refusals int `json:"refusals"`
	// Changes to the code that a replay says are worth something, the best first; Unevaluated names those that were not replayed.
	Changes     []Change `json:"changes"`
	Unevaluated int      `json:"changes_not_evaluated"`
	// PeakLive is L*, in bytes.
	PeakLive uint64 `json:"peak_live"`
}

// maxMoments is how many refusals are explained.
const maxMoments = 3

// shownGroups is how many groups a moment lists.
const shownGroups = 10

// Explain replays a case and says what happened at each refusal, or at the worst moment if everything is served.
func Explain(ctx context.Context, c *Case) (*Explanation, error) {
	out := &Explanation{}
	out.PeakLive, _ = measure.PeakLive(c.Trace)
	capacity := c.Capacity
	if capacity == 0 {
		capacity = measure.Unbounded
	}
	r, _, err := c.run(capacity, -1, out)
	if err != nil {
		return nil, err
	}
	out.Refusals = len(r.Result().OOMs)
	if out.Refusals > 0 || len(c.Trace.Ops) == 0 {
		return out, nil
	}
	at, err := c.worst(capacity)
	if err != nil {
		return nil, err
	}
	r, dev, err := c.run(capacity, at, out)
	if err != nil {
		return nil, err
	}
	free, _ := dev.Info()
	out.Moments = append(out.Moments, c.moment(at, r.View(), r.Allocator(), free, nil))
	return out, nil
}

// run replays up to and with an operation (all for -1) and enters the refusals on the way.
func (c *Case) run(capacity uint64, last int, out *Explanation) (*executor.Run, device.Device, error) {
	dev, err := c.NewDevice(capacity)
	if err != nil {
		return nil, nil, err
	}
	judge := c.NewJudge()
	var run *executor.Run
	o := executor.Options{Device: dev, Judge: func(s *executor.State, oom *allocators.OOMError) executor.Judgement {
		j := judge(s, oom)
		j.Op = s.Op
		if len(out.Moments) < maxMoments {
			refused := j
			out.Moments = append(out.Moments, c.moment(s.Op, s.View, run.Allocator(), s.DeviceFree, &refused))
		}
		if j.Verdict == executor.False {
			j.Known = "explained" // goes on behind it: this is an explanation, not a check
		}
		return j
	}}
	if run, err = executor.Start(c.program(), c.Target, o); err != nil {
		return nil, nil, err
	}
	for run.More() && (last < 0 || run.Position() <= last) {
		if err := run.Step(); err != nil {
			return nil, nil, err
		}
	}
	return run, dev, nil
}

// samples is at how many operations the worst moment is looked for.
const samples = 200

// worst is the operation after which live blocks and what they pin take most: what a release could not have returned.
func (c *Case) worst(capacity uint64) (int, error) {
	dev, err := c.NewDevice(capacity)
	if err != nil {
		return 0, err
	}
	run, err := executor.Start(c.program(), c.Target, executor.Options{Device: dev})
	if err != nil {
		return 0, err
	}
	_, peak := measure.PeakLive(c.Trace)
	every := max(len(c.Trace.Ops)/samples, 1)
	most, at := uint64(0), len(c.Trace.Ops)-1
	for run.More() {
		if err := run.Step(); err != nil {
			return 0, err
		}
		op := run.Position() - 1
		if op%every != 0 && op != peak && run.More() || c.Trace.Ops[op].Kind.Starts() && run.More() {
			continue
		}
		h, err := measure.HeldBy(run.Allocator(), op)
		if err != nil {
			return 0, err
		}
		if h.Allocated+h.Pinned > most {
			most, at = h.Allocated+h.Pinned, op
		}
	}
	return at, nil
}

// moment describes a state. free is the device's free bytes.
func (c *Case) moment(op int, v *executor.View, a allocators.Allocator, free uint64, j *executor.Judgement) Moment {
	m := Moment{Op: op, Operation: c.Trace.Ops[op].String(), Refusal: j}
	page := func(bool) uint64 { return 2 << 20 }
	if p, ok := a.(allocators.Promiser); ok {
		page = p.Promise().PageSize
	}
	groups := Groups(v, page)
	b := &m.Bar
	streams := map[int]*StreamTotal{}
	total := func(s device.Stream) *StreamTotal {
		t := streams[int(s)]
		if t == nil {
			t = &StreamTotal{Stream: int(s)}
			streams[int(s)] = t
		}
		return t
	}
	var live uint64
	for i := range v.Segments {
		g := &v.Segments[i]
		t := total(g.Stream)
		for _, k := range v.BlocksOf(i) {
			if k.State == allocators.Unmapped {
				continue
			}
			t.Reserved += k.Size
			b.Reserved += k.Size
			switch k.State {
			case allocators.Live:
				t.Live += k.Size
				live += k.Size
				b.Live += k.Requested
			case allocators.Pending:
				t.Pending += k.Size
				b.Pending += k.Size
			}
		}
	}
	b.Rounding = live - b.Live
	blocks := map[int]bool{}
	for i := range groups {
		b.Pinned += groups[i].Bytes
		for _, op := range groups[i].Ops {
			blocks[op] = true
		}
	}
	b.Releasable = b.Reserved - live - b.Pinned
	if b.FreeKnown = c.Capacity > 0; b.FreeKnown {
		b.DeviceFree = free
	}
	if c.Total > 0 && b.FreeKnown && c.Total >= b.Reserved+b.DeviceFree {
		b.Total, b.OutsideKnown = c.Total, true
		b.Outside = c.Total - b.Reserved - b.DeviceFree
	}
	m.PinningBlocks = len(blocks)
	m.Pins = c.bySite(groups, op)
	m.Groups = groups[:min(len(groups), shownGroups)]
	for s := range 1 << 16 {
		if t := streams[s]; t != nil {
			m.Streams = append(m.Streams, *t)
		}
		if len(m.Streams) == len(streams) {
			break
		}
	}
	return m
}
