package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// seekRound is a length of generated sequences, in operations, and how often a round of that length is made. A round is a
// sequence of each workload on classic and on expandable segments; of length 0, as many walks (walk).
type seekRound struct{ ops, times int }

// firstRounds come before small traces are enumerated, short ones first, since what they find is small already; lastRounds are
// repeated behind them for as long as there is time.
var (
	firstRounds = []seekRound{{8, 4}, {0, 40}, {16, 4}, {40, 4}, {120, 3}}
	lastRounds  = []seekRound{{400, 2}, {0, 20}, {40, 4}, {1500, 1}, {0, 20}, {120, 4}, {4000, 1}}
)

// seekCapacities are the devices of short sequences, in MiB: small enough to be full soon. On 0 the workload draws one.
var seekCapacities = []uint64{20, 42, 60, 104, 22, 2, 160, 0}

// rounds hands out generated sequences, numbered from i on, until yield returns false: each workload on classic and expandable
// segments, some with the option switched or a limit lowered in mid-run, some on a device that fails a call.
func (h *seeker) rounds(rounds []seekRound, i int, yield func(*trace.Trace) bool) (next int, more bool) {
	for _, r := range rounds {
		for range r.times {
			for _, w := range gen.Workloads {
				for _, expandable := range []bool{false, true} {
					if !yield(h.sequence(w, i, r.ops, expandable)) {
						return i, false
					}
					i++
				}
			}
		}
	}
	return i, true
}

func (h *seeker) sequence(w gen.Workload, i, ops int, expandable bool) *trace.Trace {
	if ops == 0 {
		return h.walk(i, expandable)
	}
	seed := gen.Seed(h.seed, w.Name, uint64(i))
	p := gen.Params{Ops: ops}
	if ops < 400 {
		p.Capacity = seekCapacities[i/2%len(seekCapacities)] << 20
	}
	t := gen.Generate(w, seed, p)
	t.Name = fmt.Sprintf("%s-%d", w.Name, i)
	conf, _ := t.Settings()
	if expandable {
		conf = joinConf("expandable_segments:True", conf)
		t.Set(trace.KeyConf, conf)
	}
	switch i / 4 % 8 {
	case 3:
		t.Ops = switched(t.Ops, conf, !expandable)
	case 5:
		// A limit on splitting, lowered where blocks are split already.
		t.Ops = slices.Insert(t.Ops, 2*len(t.Ops)/3, trace.Op{Kind: trace.Conf, Conf: "max_split_size_mb:21"})
	case 7:
		t.Header = slices.DeleteFunc(t.Header, func(f trace.Field) bool { return f.Key == trace.KeyFraction })
	}
	if i/4%8 == 6 {
		t.Set(keyFault, faultPlan(seed))
	}
	return t
}

// faultPlan draws which call of a device fails.
func faultPlan(seed uint64) string {
	plans := []string{
		"fail map nth ", "oom create nth ", "fail create nth ", "fail free nth ", "fail unmap nth ", "oom map nth ", "fail record nth ",
		"fail release nth ", "fail sync nth ", "fail wait nth ", "fail destroy nth ", "fail done nth ", "fail reserve nth ", "fail unreserve nth ",
	}
	return plans[seed/8%uint64(len(plans))] + strconv.FormatUint(seed%5+1, 10)
}

// header returns the first header line of a key.
func header(t *trace.Trace, key string) (string, bool) {
	for _, f := range t.Header {
		if f.Key == key {
			return f.Value, true
		}
	}
	return "", false
}

func joinConf(a, b string) string {
	if b == "" {
		return a
	}
	return a + "," + b
}

// switched puts two operations into a trace that switch expandable segments on or off and back.
func switched(ops []trace.Op, conf string, on bool) []trace.Op {
	set := func(on bool) trace.Op {
		text := "False"
		if on {
			text = "True"
		}
		var keep []string
		for _, c := range strings.Split(conf, ",") {
			if c != "" && !strings.HasPrefix(c, "expandable_segments") {
				keep = append(keep, c)
			}
		}
		return trace.Op{Kind: trace.Conf, Conf: joinConf("expandable_segments:"+text, strings.Join(keep, ","))}
	}
	a, b := len(ops)/3, 2*len(ops)/3
	out := append([]trace.Op(nil), ops[:a]...)
	out = append(append(out, set(on)), ops[a:b]...)
	return append(append(out, set(!on)), ops[b:]...)
}

// walkCapacities are the devices of walks, in MiB: room for one segment, or a few.
var walkCapacities = []uint64{2, 4, 20, 22, 42, 64, 100}

// The kinds of sequences, for who wants to know what a number of them means.
const (
	kindWalk  = "walks of up to 10 operations"
	kindShort = "of up to 125 operations"
	kindLong  = "of up to 4000 operations"
)

var kinds = []string{kindWalk, kindShort, kindLong}

func kindOf(t *trace.Trace) string {
	switch {
	case isWalk(t):
		return kindWalk
	case len(t.Ops) <= 125:
		return kindShort
	}
	return kindLong
}

func isWalk(t *trace.Trace) bool { return strings.HasPrefix(t.Name, "walk-") }

// walk is a short sequence over the operations of which all small traces are made, on a device that is full soon, with few
// sizes: what takes five operations to show is seldom in a workload's beginning, and too deep to be enumerated.
func (h *seeker) walk(i int, expandable bool) *trace.Trace {
	src := gen.NewSeeded(gen.Seed(h.seed, "walk", uint64(i)), 0)
	pick := func(n int) int { return int(src.Uint64n(uint64(n))) }
	capacity := walkCapacities[pick(len(walkCapacities))] << 20
	c := smallConfs[0]
	if pick(2) == 0 {
		c = smallConfs[pick(len(smallConfs))]
	}
	t := &trace.Trace{Name: fmt.Sprintf("walk-%d", i), Header: smallHeader(capacity, expandable, c.conf, c.fraction)}
	var menu []uint64
	for range 1 + pick(3) {
		if n := smallSizes[pick(len(smallSizes))]; n <= capacity {
			menu = append(menu, n)
		}
	}
	menu = append(menu, smallSizes[pick(2)])
	streams := 1 + pick(2)
	works := i/2%4 == 3 // work is queued that uses blocks, which the reference cannot follow
	var live []uint64
	next := uint64(0)
	for range 4 + pick(7) {
		var op trace.Op
		switch d := pick(20); {
		case d < 6 && len(live) > 0:
			k := pick(len(live))
			op = trace.Op{Kind: trace.Free, ID: live[k]}
			live = slices.Delete(live, k, k+1)
		case d < 9 && len(live) > 0:
			op = trace.Op{Kind: trace.Record, ID: live[pick(len(live))], Stream: device.Stream(pick(3))}
		case d == 9:
			op = trace.Op{Kind: trace.Sync, Stream: trace.AllStreams}
		case d == 10:
			op = trace.Op{Kind: trace.EmptyCache}
		case d > 16 && works && len(live) > 0:
			op = trace.Op{Kind: trace.Use, ID: live[pick(len(live))], Stream: device.Stream(pick(2))}
		case d == 11:
			op = trace.Op{Kind: trace.Conf, Conf: smallSwitches[pick(len(smallSwitches))]}
		default:
			op = trace.Op{Kind: trace.Alloc, ID: next, Bytes: menu[pick(len(menu))], Stream: device.Stream(pick(streams))}
			live = append(live, next)
			next++
		}
		t.Ops = append(t.Ops, op)
	}
	if i/4%8 == 6 {
		t.Set(keyFault, faultPlan(src.Uint64n(1<<32)))
	}
	return t
}
