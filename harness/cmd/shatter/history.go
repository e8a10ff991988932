package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/corpus/snapshot"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
	"github.com/shatter-gpu/shatter/harness/whatif"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

// historyFlags are the flags of commands on the history of a program.
type historyFlags struct {
	version, capacity, total, request string
	fraction                          float64
	device                            int
	json                              bool

	options snapshot.Options
	bytes   uint64 // of --total
}

func (f *historyFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.version, "torch-version", "", "PyTorch version whose rules the replay follows: "+strings.Join(caching.RuleVersions(), ", ")+
		" (default: guessed from the file's keys)")
	fl.StringVar(&f.capacity, "capacity", "", "what PyTorch could take of the device (default: from the recorded OOM)")
	fl.StringVar(&f.total, "total", "", "the device's whole memory; what PyTorch could not take of it is outside PyTorch")
	fl.StringVar(&f.request, "request", "", "the request that failed, where the file has none")
	fl.Float64Var(&f.fraction, "fraction", -1, "memory fraction that the program set, 0 to 1")
	fl.IntVar(&f.device, "device-index", -1, "look at this device of the file only")
	fl.BoolVar(&f.json, "json", false, "one JSON document a line")
}

// size reads a flag that is a size; empty is 0.
func size(flag, text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := trace.ParseSize(text)
	if err != nil {
		return 0, fmt.Errorf("--%s: %w", flag, err)
	}
	return n, nil
}

func (f *historyFlags) resolve(c *cobra.Command) error {
	var err error
	o := &f.options
	if o.Capacity, err = size("capacity", f.capacity); err != nil {
		return err
	}
	if o.Capacity > 0 {
		if err := catalog.CheckCapacity(o.Capacity); err != nil {
			return fmt.Errorf("--capacity: %w", err)
		}
	}
	if f.bytes, err = size("total", f.total); err != nil {
		return err
	}
	if o.Request, err = size("request", f.request); err != nil {
		return err
	}
	if f.version != "" {
		if _, err := caching.RulesFor(f.version); err != nil {
			return hinted{fmt.Errorf("--torch-version %s is not known", f.version),
				"take the nearest of " + strings.Join(caching.RuleVersions(), ", ")}
		}
		o.Version = f.version
	}
	if c.Flags().Changed("fraction") {
		if !(f.fraction >= 0 && f.fraction <= 1) {
			return fmt.Errorf("--fraction %g: must lie between 0 and 1", f.fraction)
		}
		o.Fraction = &f.fraction
	}
	return nil
}

// history is what is known of a program's run on one device, from a snapshot or a trace.
type history struct {
	basis    reports.Basis
	trace    *trace.Trace
	conf     string // without x_ settings
	rules    caching.Rules
	fraction *float64
	site     func(op int) string
	time     func(op int) int64
	// unfit says why it cannot be replayed, empty if it can.
	unfit string
}

// isSnapshot tells by its first bytes, or its name, whether a file is a memory snapshot.
func isSnapshot(path string) bool {
	name := strings.TrimSuffix(path, ".gz")
	if strings.HasSuffix(name, ".pickle") || strings.HasSuffix(name, ".pkl") || strings.HasSuffix(name, ".html") {
		return true
	}
	if path == "-" {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head, _ := bufio.NewReader(f).Peek(1)
	return len(head) == 1 && (head[0] == 0x80 || head[0] == '<')
}

// historyFiles lists files, and the snapshots and traces of folders.
func historyFiles(args []string) ([]string, error) {
	var out []string
	for _, a := range args {
		info, err := os.Stat(a)
		if _, named := namedTrace(a); named || a == "-" {
			out = append(out, a)
			continue
		}
		if err != nil {
			return nil, hinted{err, "name a memory snapshot (.pickle, .html), a trace, or a folder of them"}
		}
		if !info.IsDir() {
			out = append(out, a)
			continue
		}
		var files []string
		err = filepath.WalkDir(a, func(path string, d fs.DirEntry, err error) error {
			base := strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst")
			if err == nil && !d.IsDir() && (strings.HasSuffix(base, ".trace") || isSnapshot(path)) {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s: the folder has no snapshot (*.pickle, *.html) and no *.trace", a)
		}
		slices.Sort(files)
		out = append(out, files...)
	}
	return out, nil
}

// histories reads a file: one history for each device with something in it.
func (f *historyFlags) histories(path string) ([]*history, error) {
	if _, named := namedTrace(path); named || !isSnapshot(path) {
		h, err := f.ofTrace(path)
		return []*history{h}, err
	}
	s, err := snapshot.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []*history
	for _, d := range s.Devices() {
		if f.device >= 0 && d != f.device {
			continue
		}
		h, err := f.ofSnapshot(path, s, d)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	if len(out) == 0 {
		return nil, hinted{fmt.Errorf("%s: no device has a history or segments", path),
			"record with torch.cuda.memory._record_memory_history() before torch.cuda.memory._dump_snapshot()"}
	}
	return out, nil
}

func (f *historyFlags) ofSnapshot(path string, s *snapshot.Snapshot, dev int) (*history, error) {
	h := &history{fraction: f.options.Fraction, basis: reports.Basis{File: path, Device: dev, Written: s.ShapeText(), Exact: []string{}, Inferred: []string{}, Missing: []string{}}}
	m, err := snapshot.Import(s, dev, f.options)
	var unfit *snapshot.NotReplayable
	if errors.As(err, &unfit) {
		h.unfit = unfit.Reason
		h.basis.Operations = len(s.Traces[dev])
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h.trace = m.Trace
	h.rules, err = caching.RulesFor(m.Version)
	if err != nil {
		return nil, err
	}
	h.conf = withoutOwn(m.Conf)
	h.site = snapshot.Sites(m)
	h.time = func(op int) int64 {
		if e := m.Entry[op]; e >= 0 {
			return s.Traces[dev][e].TimeUS
		}
		return 0
	}
	b := &h.basis
	b.Operations, b.Settings = len(m.Trace.Ops), h.conf
	b.Rules, b.RulesFrom, b.RulesGuessed = m.Version, h.rules.Source(), m.Guessed
	b.Verified, b.PrivateBytes, b.ReservedBytes = m.Verified, m.Private, m.Reserved
	b.Exact, b.Inferred, b.Missing = append(b.Exact, m.Loss.Exact...), append(b.Inferred, m.Loss.Inferred...), append(b.Missing, m.Loss.Missing...)
	b.Capacity, b.CapacityIs = m.Capacity, m.CapacityIs
	return h, nil
}

// ofTrace takes a trace's header for what a snapshot records.
func (f *historyFlags) ofTrace(path string) (*history, error) {
	var t *trace.Trace
	var err error
	if named, ok := namedTrace(path); ok {
		t, err = named(path)
	} else {
		t, err = tracefile.Read(path)
	}
	if err != nil {
		return nil, err
	}
	h := &history{trace: t, fraction: f.options.Fraction, basis: reports.Basis{File: path, Operations: len(t.Ops), Exact: []string{}, Inferred: []string{}, Missing: []string{}}}
	if h.fraction == nil {
		if v, ok, err := t.HeaderFraction(); err != nil {
			return nil, err
		} else if ok {
			h.fraction = &v
		}
	}
	conf, _ := t.Settings()
	set, _, err := caching.ParseSettings(conf)
	if err != nil {
		return nil, fmt.Errorf("%s: header conf: %w", path, err)
	}
	h.rules, h.conf = set.Rules, withoutOwn(conf)
	if f.options.Version != "" {
		if h.rules, err = caching.RulesFor(f.options.Version); err != nil {
			return nil, err
		}
	}
	if f.options.Request > 0 {
		t.Ops = append(slices.Clip(t.Ops), trace.Op{Kind: trace.Alloc, ID: whatif.NextID(t), Bytes: f.options.Request})
	}
	b := &h.basis
	b.Settings, b.Rules, b.RulesFrom = h.conf, h.rules.Version, h.rules.Source()
	switch bytes, ok, err := t.Capacity(); {
	case err != nil:
		return nil, err
	case f.options.Capacity > 0:
		b.Capacity, b.CapacityIs = f.options.Capacity, "as given"
	case ok:
		b.Capacity, b.CapacityIs = bytes, "the trace's header"
	}
	return h, nil
}

// snapshotTraces imports all devices of a snapshot.
func snapshotTraces(path string) ([]*trace.Trace, error) {
	s, err := snapshot.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []*trace.Trace
	for _, d := range s.Devices() {
		m, err := snapshot.Import(s, d, snapshot.Options{})
		if err != nil {
			return nil, err
		}
		out = append(out, m.Trace)
	}
	return out, nil
}

// specOf is the only allocator of --alloc, else that of the trace's header.
func (f *targetFlags) specOf(t *trace.Trace) (catalog.Spec, error) {
	if len(f.specs) > 0 {
		return f.specs[0], nil
	}
	return headerSpec(t, "")
}

// writeSnapshot runs a trace and writes what PyTorch would have recorded of it.
func writeSnapshot(path string, t *trace.Trace, spec catalog.Spec, capacity uint64) error {
	if spec.Settings == nil {
		return fmt.Errorf("--snapshot: %s is no caching allocator, so it has no memory snapshots; take classic or expandable", spec.Name)
	}
	dev, err := simulatedDevice(capacity)
	if err != nil {
		return err
	}
	set := *spec.Settings
	// The string says what the name says too, as PyTorch's would.
	set.Text = withoutOwn(set.Text)
	if set.Expandable && !strings.Contains(set.Text, "expandable_segments") {
		set.Text = strings.TrimSuffix("expandable_segments:True,"+set.Text, ",")
	}
	s, err := snapshot.Record(t, targetOf(spec), dev, &set)
	if err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error { return snapshot.Write(w, s) })
}

// writeWhole writes a file whole or not at all.
func writeWhole(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return hinted{fmt.Errorf("cannot write %s: %w", path, err), "name a file in a folder that can be written"}
	}
	defer os.Remove(f.Name()) // without effect once it is renamed
	err = write(f)
	for _, step := range []func() error{func() error { return f.Chmod(0o644) }, f.Sync, f.Close} {
		if e := step(); err == nil {
			err = e
		}
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return faultError{fmt.Errorf("writing %s: %w", path, err)}
	}
	return nil
}

// withoutOwn drops the settings that are our own.
func withoutOwn(conf string) string {
	var keep []string
	for _, s := range strings.Split(conf, ",") {
		if !strings.HasPrefix(s, "x_") && s != "" {
			keep = append(keep, s)
		}
	}
	return strings.Join(keep, ",")
}

// target is the allocator under a settings string and the history's rules.
func (h *history) target(conf string, fraction *float64) (executor.Target, error) {
	if h.rules.Version != "2.6" {
		conf = strings.TrimSuffix("x_rules:"+h.rules.Version+","+conf, ",")
	}
	spec, err := catalog.FromSettings(conf, fraction)
	if err != nil {
		return executor.Target{}, err
	}
	return targetOf(spec), nil
}

func simulatedDevice(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

// randomDevice makes devices whose segments have addresses in the random order of a seed.
func randomDevice(seed uint64) measure.NewDevice {
	return func(capacity uint64) (device.Device, error) {
		return simdev.New(simdev.Options{Capacity: capacity, Order: simdev.Random, Seed: seed})
	}
}

// explained makes the case of a history.
func (h *history) explained(total uint64) (*whatif.Case, error) {
	t, err := h.target(h.conf, h.fraction)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.basis.File, err)
	}
	c := &whatif.Case{
		Trace: h.trace, Target: t, NewDevice: simulatedDevice, Capacity: h.basis.Capacity, Total: total, Site: h.site, Time: h.time,
		NewJudge: properties.NewJudge,
	}
	return c, nil
}
