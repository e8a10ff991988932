package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
	"github.com/shatter-gpu/shatter/properties"
)

// defaultCapacity is the device of a trace that says nothing: 80 GiB.
const defaultCapacity = 80 << 30

// targetFlags are the flags that say what to run on.
type targetFlags struct {
	allocs   []string
	device   string
	capacity string
	known    string
	promise  string
	verify   string
	fault    string

	specs []catalog.Spec
	dev   catalog.DeviceSpec
	bytes uint64 // of --capacity or --device; 0 if neither gave a size
	// level is that of --promise, if asked.
	level executor.Level
	asked bool
	// How much of the bytes is verified, and which device calls fail.
	bytesVerified executor.Verify
	faults        faultdev.Plan
}

func (f *targetFlags) register(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.allocs, "alloc", nil, "allocator NAME[@CONF], CONF as in PYTORCH_CUDA_ALLOC_CONF; repeatable")
	c.Flags().StringVar(&f.device, "device", "sim", "device: sim[:SIZE][,addr=bump|low|random:SEED], host:SIZE or cuda:N[:SIZE] (see list devices)")
	c.Flags().StringVar(&f.capacity, "capacity", "", "the device's memory, for example 80GiB (default: --device, the trace's header, 80GiB)")
	c.Flags().StringVar(&f.promise, "promise", "", "ask that no request is refused while memory is free, counted at this level "+
		"(see shatter list properties)")
	c.Flags().StringVar(&f.known, "known", "on", "on: count known upstream issues apart; off: they are findings")
	c.Flags().StringVar(&f.verify, "verify", "", "bytes of live blocks: stamps, full or off (default: stamps on devices that have bytes)")
	c.Flags().StringVar(&f.fault, "fault", "", "make device calls fail, for example 'fail map nth 3; oom create after 40MiB'")
}

// resolve checks the flags before anything runs.
func (f *targetFlags) resolve(c *cobra.Command) error {
	for _, a := range f.allocs {
		s, err := catalog.Parse(a)
		if err != nil {
			return err
		}
		for _, w := range s.Warnings {
			fmt.Fprintf(c.ErrOrStderr(), "shatter: warning: %s\n", w)
		}
		f.specs = append(f.specs, s)
	}
	var err error
	if f.dev, err = catalog.ParseDevice(f.device, trace.ParseSize); err != nil {
		if errors.Is(err, device.ErrEnvironment) {
			return faultError{err}
		}
		return err
	}
	f.bytes = f.dev.Capacity
	if f.capacity != "" {
		if f.bytes, err = trace.ParseSize(f.capacity); err != nil {
			return fmt.Errorf("--capacity: %w", err)
		}
		if err := f.dev.Check(f.bytes); err != nil {
			return fmt.Errorf("--capacity: %w", err)
		}
	}
	if f.promise != "" {
		if f.level, err = properties.LevelNamed(f.promise); err != nil {
			return fmt.Errorf("--promise: %w", err)
		}
		f.asked = true
	}
	if f.known != "on" && f.known != "off" {
		return fmt.Errorf("--known %s: must be on or off", f.known)
	}
	if err := f.resolveVerify(); err != nil {
		return err
	}
	if f.fault != "" {
		if f.faults, err = faultdev.Parse(f.fault, trace.ParseSize); err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
	}
	return nil
}

// resolveVerify reads --verify; without it bytes are stamped where there are any.
func (f *targetFlags) resolveVerify() error {
	switch f.verify {
	case "":
		if f.dev.HasBytes() {
			f.bytesVerified = executor.VerifyStamps
		}
		return nil
	case "off":
		return nil
	case "stamps":
		f.bytesVerified = executor.VerifyStamps
	case "full":
		f.bytesVerified = executor.VerifyFull
	default:
		return fmt.Errorf("--verify %s: must be stamps, full or off", f.verify)
	}
	if !f.dev.HasBytes() {
		return fmt.Errorf("--verify %s: the device %s holds no bytes; use --device host:2GiB or cuda:0", f.verify, f.dev.Name)
	}
	return nil
}

// newDevice makes devices for measures and explanations, which need many: simulated ones, whatever the device of the run is.
func (f *targetFlags) newDevice() measure.NewDevice { return f.dev.NewSimulated }

// relationDevice makes devices for relations: simulated ones whose addresses rise, whatever --device says. What a relation compares
// need not buy at the same places, and ties break by address.
func (f *targetFlags) relationDevice() measure.NewDevice { return catalog.DeviceSpec{}.NewSimulated }

// replayFlags are the flags beside allocator and capacity that a replay line needs.
func (f *targetFlags) replayFlags() []string {
	var flags []string
	if _, options, _ := strings.Cut(f.dev.Name, ","); f.dev.Kind != "sim" {
		flags = append(flags, "--device", f.dev.Name)
	} else if options != "" {
		flags = append(flags, "--device", "sim,"+options)
	}
	if f.verify != "" {
		flags = append(flags, "--verify", f.verify)
	}
	if f.fault != "" {
		flags = append(flags, "--fault", f.fault)
	}
	if f.known == "off" {
		flags = append(flags, "--known", "off")
	}
	if f.promise != "" {
		flags = append(flags, "--promise", f.promise)
	}
	return flags
}

// closeDevice gives back what a device with real memory holds.
func closeDevice(d device.Device) {
	if c, ok := d.(io.Closer); ok {
		_ = c.Close() // its memory is the process's: nothing is lost
	}
}

// capacityOf is the device for a trace: --capacity, else --device, else the header, else 80 GiB.
func (f *targetFlags) capacityOf(t *trace.Trace) (uint64, error) {
	if f.bytes > 0 {
		return f.bytes, nil
	}
	bytes, ok, err := t.Capacity()
	if err != nil {
		return 0, err
	}
	if !ok {
		return defaultCapacity, nil
	}
	if err := f.dev.Check(bytes); err != nil {
		return 0, fmt.Errorf("%s: header capacity: %w", t.Name, err)
	}
	return bytes, nil
}

// targetsOf are the allocators for a trace: --alloc, else the header's settings, else classic.
func (f *targetFlags) targetsOf(t *trace.Trace) ([]executor.Target, error) {
	specs := f.specs
	if len(specs) == 0 {
		s, err := headerSpec(t, "")
		if err != nil {
			return nil, err
		}
		specs = []catalog.Spec{s}
	}
	var out []executor.Target
	for _, s := range specs {
		if err := checkSettings(t, s); err != nil {
			return nil, err
		}
		out = append(out, targetOf(s))
	}
	return out, nil
}

func targetOf(s catalog.Spec) executor.Target {
	return executor.Target{Name: s.Name, New: func(d device.Device) (allocators.Allocator, error) { return s.New(d) }}
}

// headerSpec is the allocator that a trace's header asks for. base, if not empty, is classic or expandable and overrules the
// header's expandable_segments.
func headerSpec(t *trace.Trace, base string) (catalog.Spec, error) {
	conf, _ := t.Settings()
	fraction, ok, err := t.HeaderFraction()
	if err != nil {
		return catalog.Spec{}, err
	}
	var f *float64
	if ok {
		f = &fraction
	}
	s, err := catalog.FromSettings(conf, f)
	if err != nil {
		return s, fmt.Errorf("%s: header conf: %w", t.Name, err)
	}
	if base != "" && base != s.Base {
		_, rest, given := strings.Cut(s.Name, "@")
		name := base
		if given {
			name += "@" + rest
		}
		s, err = catalog.Parse(name)
	}
	return s, err
}

// checkSettings applies the settings operations of a trace to a target's settings, so that a bad one is found, with its
// line, before anything runs.
func checkSettings(t *trace.Trace, s catalog.Spec) error {
	if s.Settings == nil {
		return nil
	}
	set := *s.Settings
	for i := range t.Ops {
		if t.Ops[i].Kind != trace.Conf {
			continue
		}
		next, _, err := set.Apply(t.Ops[i].Conf)
		if err == nil && (next.HasFraction != set.HasFraction || next.Fraction != set.Fraction) {
			err = errors.New("x_memory_fraction holds from the start; in mid-trace use the operation fraction")
		}
		if err != nil {
			return fmt.Errorf("%s:%d: operation %d: %w", t.Name, t.Line(i), i, err)
		}
		set = next
	}
	return nil
}

// readTraces reads files, folders (their *.trace, also .gz and .zst, in order of the name) gen:WORKLOAD:SEED[:ops=N], and
// adversary:NAME[:ALLOCATOR].
func readTraces(args []string) ([]*trace.Trace, error) {
	var out []*trace.Trace
	for _, a := range args {
		if named, ok := namedTrace(a); ok {
			t, err := named(a)
			if err != nil {
				return nil, err
			}
			out = append(out, t)
			continue
		}
		files, err := traceFiles(a)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if isSnapshot(f) {
				list, err := snapshotTraces(f)
				if err != nil {
					return nil, err
				}
				out = append(out, list...)
				continue
			}
			t, err := tracefile.Read(f)
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		}
	}
	return out, nil
}

// namedTrace says how a trace that is no file is made.
func namedTrace(arg string) (func(string) (*trace.Trace, error), bool) {
	switch kind, _, _ := strings.Cut(arg, ":"); kind {
	case "gen":
		return generated, true
	case "adversary":
		return adversarial, true
	}
	return nil, false
}

func traceFiles(arg string) ([]string, error) {
	if arg == "-" {
		return []string{arg}, nil
	}
	info, err := os.Stat(arg)
	if err != nil {
		return nil, hinted{fmt.Errorf("%w", err), "name a trace file, a folder of traces, gen:WORKLOAD:SEED or adversary:NAME"}
	}
	if !info.IsDir() {
		return []string{arg}, nil
	}
	var files []string
	err = filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst")
		if !d.IsDir() && strings.HasSuffix(base, ".trace") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: the folder has no file named *.trace, *.trace.gz or *.trace.zst", arg)
	}
	slices.Sort(files)
	return files, nil
}

// generated makes the trace that a campaign called by this name.
func generated(name string) (*trace.Trace, error) {
	parts := strings.Split(name, ":")
	bad := func() error {
		return fmt.Errorf("%q: a generated trace is gen:WORKLOAD:SEED or gen:WORKLOAD:SEED:ops=N", name)
	}
	if len(parts) < 3 || len(parts) > 4 {
		return nil, bad()
	}
	w, err := gen.Find(parts[1])
	if err != nil {
		return nil, err
	}
	seed, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return nil, bad()
	}
	var p gen.Params
	if len(parts) == 4 {
		n, ok := strings.CutPrefix(parts[3], "ops=")
		if p.Ops, err = strconv.Atoi(n); !ok || err != nil || p.Ops < 1 {
			return nil, bad()
		}
	}
	t := gen.Generate(w, seed, p)
	t.Name = name
	return t, nil
}
