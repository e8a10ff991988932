package conform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Versions is how several allocators decide on one panel of traces and settings, each compared with the first of them.
type Versions struct {
	Logs    int
	Targets []VersionTarget
}

// VersionTarget is one allocator of the comparison.
type VersionTarget struct {
	Name string
	// Same, Different and Rejected count pairs of trace and settings; what rejects the settings was not run.
	Same, Different, Rejected int
	// Differences are grouped by what explains them, in the order in which they were met.
	Differences []VersionDifference
}

// VersionDifference is a group of differences with one explanation.
type VersionDifference struct {
	// Explanation names the line of the specification, empty if none explains it.
	Explanation string
	Count       int
	// First is the first one met; Want is the row of the first allocator.
	First Difference
	// log is where it was met.
	log Log
}

// readAllRows runs a log's trace on an allocator under the log's settings and hands over each row.
func readAllRows(l *Log, p *executor.Program, spec *catalog.Spec, capacity uint64, row func([]byte) (more bool)) error {
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	if err != nil {
		return fmt.Errorf("%s: %w", l.Name(), err)
	}
	more := true
	var buf []byte
	r, err := executor.Start(p, executor.Target{Name: spec.Name, New: spec.New}, executor.Options{Device: dev, OnRow: func(w *executor.Row) {
		if more {
			buf = w.Append(buf[:0])
			more = row(buf)
		}
	}})
	if err != nil {
		return err
	}
	defer r.Leave()
	for r.More() && more {
		if err := r.Step(); err != nil {
			return err
		}
	}
	if f := r.Result().Findings; more && len(f) > 0 {
		row([]byte(f[0].String()))
	}
	return nil
}

// firstOf compares two allocators on a log; nil if all rows are the same. rejected says that one of them does not take the
// settings: then nothing was run.
func firstOf(l *Log, p *executor.Program, a, b *catalog.Spec) (d *Difference, rejected bool, err error) {
	var specs [2]catalog.Spec
	for i, s := range []*catalog.Spec{a, b} {
		if specs[i], err = s.With(l.Conf, l.Fraction); err != nil {
			if errors.Is(err, allocators.ErrEnvironment) {
				return nil, false, err
			}
			return &Difference{l.Name(), 0, "settings", orNone(l.Conf), err.Error()}, true, nil
		}
	}
	var rows []string
	if err := readAllRows(l, p, &specs[0], l.Capacity, func(row []byte) bool { rows = append(rows, string(row)); return true }); err != nil {
		return nil, false, err
	}
	at := 0
	err = readAllRows(l, p, &specs[1], l.Capacity, func(row []byte) bool {
		want := "(the run has ended)"
		if at < len(rows) {
			want = rows[at]
		}
		at++
		if got := string(row); got != want {
			if column := firstDifference(want, got); column != "" {
				d = &Difference{l.Name(), at + 1, column, want, got}
			}
		}
		return d == nil
	})
	if d == nil && at < len(rows) && err == nil {
		d = &Difference{l.Name(), at + 1, "op", rows[at], "(the run has ended)"}
	}
	return d, false, err
}

// CompareVersions runs every pair of trace and settings of a folder of decision logs on all targets. The logs themselves are not
// read.
func CompareVersions(dir string, targets []catalog.Spec, progress func(done, total int)) (*Versions, error) {
	logs, err := ReadIndex(dir)
	if err != nil {
		return nil, err
	}
	programs, err := readPrograms(logs)
	if err != nil {
		return nil, err
	}
	out := &Versions{Logs: len(logs), Targets: make([]VersionTarget, len(targets))}
	type answer struct {
		d        *Difference
		rejected bool
		err      error
	}
	answers := make([][]answer, len(logs))
	each(len(logs), progress, func(i int) {
		answers[i] = make([]answer, len(targets))
		for k := 1; k < len(targets); k++ {
			a := &answers[i][k]
			a.d, a.rejected, a.err = firstOf(&logs[i], programs[logs[i].Trace], &targets[0], &targets[k])
		}
	})
	for k := range targets {
		t := &out.Targets[k]
		t.Name = targets[k].Name
		for i := range logs {
			a := answers[i][k]
			switch {
			case a.err != nil:
				return nil, a.err
			case a.d == nil:
				t.Same++
				continue
			case a.rejected:
				t.Rejected++
			default:
				t.Different++
			}
			t.group(&logs[i], a.d, byAge(targets[0]) != byAge(targets[k]))
		}
	}
	return out, nil
}

func (t *VersionTarget) group(l *Log, d *Difference, by212 bool) {
	why := explain(l, d, by212)
	for i := range t.Differences {
		if t.Differences[i].Explanation == why {
			t.Differences[i].Count++
			return
		}
	}
	t.Differences = append(t.Differences, VersionDifference{Explanation: why, Count: 1, First: *d, log: *l})
}

// byAge tells whether an allocator is that of PyTorch 2.12, which among free blocks of one size takes the one made first, where
// all others take the lowest.
func byAge(s catalog.Spec) bool {
	return s.Remote != nil && strings.HasPrefix(s.Remote.Label, "PyTorch 2.12.")
}

const agedBlocks = "2.12 only: among free blocks of one size the one made first, not the lowest (PR 178362; undone for these pools in 2.13: " +
	"PR 182929, issue 183451); not modelled"

// explain is Explain, and knows what differs where one of the two is 2.12.
func explain(l *Log, d *Difference, by212 bool) string {
	if block := blockSizes(d); by212 && (d.Column == "segment" || d.Column == "offset") && block[0] == block[1] {
		return agedBlocks
	}
	if by212 && d.Column == "driver_events" && slices.Equal(events(d.Want), events(d.Got)) {
		return agedBlocks // they are given back in that order, too
	}
	return Explain(l.Conf, l.Fraction, d)
}

// events are the device calls of a row, sorted.
func events(row string) []string {
	list := strings.Split(row[strings.LastIndexByte(row, '\t')+1:], ";")
	slices.Sort(list)
	return list
}

// Explain names the line of the specification that explains why two PyTorch versions decide otherwise under these settings: of
// spec/caching-allocator.md section 24 or spec/alloc-conf.md section 8. It is empty if none does.
func Explain(conf string, fraction *float64, d *Difference) string {
	has := func(key string) bool { return strings.Contains(conf, key) }
	if d.Column == "settings" {
		for _, k := range []struct{ key, line string }{
			{"max_non_split_rounding_mb", "alloc-conf.md 8: 2.6.0 has the keys of section 4 (max_non_split_rounding_mb)"},
			{"expandable_segments", "alloc-conf.md 8: expandable_segments (96995, 2023)"},
			{"roundup_power2_divisions:[", "alloc-conf.md 8: list form of the rounding key (87290, Oct 2022)"},
		} {
			if strings.Contains(d.Got, k.key) && has(k.key) {
				return k.line
			}
		}
		return ""
	}
	block := blockSizes(d)
	switch {
	case has("roundup_power2_divisions:[") && has(":1,") && block[0] != block[1] && block[1]%512 != 0:
		return "alloc-conf.md 8: 1-division alignment (126830, May 2024)"
	case has("roundup_power2_divisions:[") && has(">:") && block[0] != block[1]:
		return "alloc-conf.md 8: the key > also overwrote the last key's bucket (fix 165304, Oct 2025)"
	case has("expandable_segments:True") && d.Column == "driver_events" && strings.Contains(d.Got, ";unreserve:") != strings.Contains(d.Want, ";unreserve:"):
		return "caching-allocator.md 24: requests larger than the reserve fail through the OOM path (PR 192269, Aug 2026)"
	case has("expandable_segments:True") && (has("max_split_size_mb") || has("garbage_collection_threshold")):
		return "alloc-conf.md 8: guards for mixing expandable with GC / max_split (134338, Aug 2024)"
	case fraction != nil && *fraction == 1:
		return "caching-allocator.md 24: fraction 1 = no limit (2.10)"
	}
	return ""
}

// blockSizes are the block sizes of the two rows of a difference, 0 where there is none.
func blockSizes(d *Difference) (out [2]uint64) {
	for i, row := range []string{d.Want, d.Got} {
		if f := strings.Split(row, "\t"); len(f) > 5 {
			_, _ = fmt.Sscan(f[5], &out[i]) // `-` stays 0
		}
	}
	return out
}

// Shrink looks for the smallest trace on which two allocators decide otherwise, from a difference of CompareVersions on.
func (d *VersionDifference) Shrink(ctx context.Context, a, b catalog.Spec, limit time.Duration) (*trace.Trace, error) {
	if d.First.Line == 0 {
		return nil, nil // it was not run
	}
	programs, err := readPrograms([]Log{d.log})
	if err != nil {
		return nil, err
	}
	t := programs[d.log.Trace].Trace
	if _, ok, err := t.Capacity(); err != nil || !ok {
		t = &trace.Trace{Name: t.Name, Header: append([]trace.Field{{Key: "capacity", Value: fmt.Sprint(d.log.Capacity)}}, t.Header...), Ops: t.Ops}
	}
	const signature = "decisions-differ"
	r, err := shrink.Minimise(ctx, t, func(t *trace.Trace) shrink.Answer {
		l := d.log
		if l.Capacity, _, err = t.Capacity(); err != nil {
			return shrink.Answer{Kind: shrink.Broken, Err: err}
		}
		diff, _, err := firstOf(&l, executor.Compile(t), &a, &b)
		switch {
		case err != nil:
			return shrink.Answer{Kind: shrink.Broken, Err: err}
		case diff == nil || explain(&l, diff, byAge(a) != byAge(b)) != d.Explanation:
			return shrink.Answer{Kind: shrink.Passes}
		}
		return shrink.Answer{Kind: shrink.Same, Signature: signature, Op: diff.Line - 2}
	}, shrink.Budget{Time: limit})
	if err != nil {
		return nil, err
	}
	return r.Trace, nil
}
