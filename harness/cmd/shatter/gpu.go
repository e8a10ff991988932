package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/cudadev"
	"github.com/shatter-gpu/shatter/allocators/device/devicetest"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/ondevice"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports/gpu"
)

// fakeGPU begins the name of the stand-in for the driver that tests use.
const fakeGPU = "fake CUDA device"

type gpuFlags struct {
	ordinal, seqs, rounds int
	limit, out, health    string
	verify                string
	time                  time.Duration
}

func gpuCommand() *cobra.Command {
	var f gpuFlags
	c := &cobra.Command{
		Use:   "gpu [TRACE...]",
		Short: "check a GPU: device rules, traces with bytes verified, simulated against real, call latencies",
		Long: `Gpu runs on a real NVIDIA GPU what the other commands run on simulated memory, and compares: the rules that devices must
keep, the given traces (scaled to the card) and generated sequences on classic and expandable with every block's bytes
stamped and verified, the decisions against those on the simulated device, and the time of each driver call. It writes
report.json and summary.md. A card that cannot be used, or has less memory than asked for, is exit 3 and never a finding.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fl := c.Flags()
	fl.IntVar(&f.ordinal, "gpu", 0, "number of the GPU")
	fl.StringVar(&f.limit, "capacity", "8GiB", "memory for the sequences; traces of larger devices are scaled to what is free")
	fl.StringVar(&f.out, "out", "gpu-report", "folder for report.json and summary.md")
	fl.StringVar(&f.health, "health", "", "file with what was looked at before, a line each, to be put into the report")
	fl.IntVar(&f.seqs, "seqs", 200, "number of generated sequences")
	fl.IntVar(&f.rounds, "rounds", 100, "how often each driver call is timed")
	fl.StringVar(&f.verify, "verify", "stamps", "bytes of live blocks: stamps or full")
	fl.DurationVar(&f.time, "time", 7*time.Minute, "deadline; what does not fit is left out and named")
	return c
}

func (f *gpuFlags) run(c *cobra.Command, args []string) error {
	limit, err := trace.ParseSize(f.limit)
	if err != nil {
		return fmt.Errorf("--capacity: %w", err)
	}
	verify := executor.VerifyStamps
	if f.verify == "full" {
		verify = executor.VerifyFull
	} else if f.verify != "stamps" {
		return fmt.Errorf("--verify %s: must be stamps or full", f.verify)
	}
	traces, err := readTraces(args)
	if err != nil {
		return err
	}
	if err := checkWritable(f.out); err != nil {
		return err
	}
	start := time.Now()
	ctx, cancel := context.WithDeadline(c.Context(), start.Add(f.time))
	defer cancel()
	g := &gpuRun{
		gpuFlags: f, limit: limit, ctx: ctx,
		check: ondevice.Check{Properties: properties.All(), NewJudge: properties.NewJudge, Verify: verify},
		report: gpu.Report{Schema: gpu.Schema, Shatter: version, Findings: []executor.Finding{}, Skipped: []string{}, Health: []string{},
			Traces: []gpu.Trace{}},
	}
	for _, step := range []func() error{
		g.describe, g.conform, func() error { return g.traces(traces) }, g.sequences, g.latencies,
	} {
		if err := step(); err != nil {
			return faultError{err}
		}
	}
	g.report.Timing.Seconds = time.Since(start).Seconds()
	if err := g.write(c); err != nil {
		return faultError{err}
	}
	if c.Context().Err() != nil {
		return errInterrupted
	}
	if g.report.Failed() {
		return errFindings
	}
	return nil
}

// gpuRun is a run of the command on its way.
type gpuRun struct {
	*gpuFlags
	limit  uint64
	free   uint64
	ctx    context.Context
	check  ondevice.Check
	report gpu.Report
}

func (g *gpuRun) open(limit uint64) (*cudadev.Device, error) {
	return cudadev.New(cudadev.Options{Ordinal: g.ordinal, Limit: limit})
}

func (g *gpuRun) describe() error {
	d, err := g.open(0)
	if err != nil {
		return err
	}
	defer d.Close()
	r := &g.report
	if r.Free, r.Total, err = d.DriverInfo(); err != nil {
		return err
	}
	if r.Free < r.Total/4*3 {
		return fmt.Errorf("%s is busy: %d of %d bytes are free; free the card or take another one (--gpu N)", d.Name(), r.Free, r.Total)
	}
	// Room is left for the driver: it keeps page tables and contexts in the card's memory, too.
	g.free = r.Free / 10 * 9 / cudadev.Granule * cudadev.Granule
	g.limit = min(g.limit, g.free)
	r.Device, r.Limit, r.Holds = d.Name(), g.free, d.Holds()
	r.Real = !strings.HasPrefix(r.Device, fakeGPU)
	if g.health != "" {
		text, err := os.ReadFile(g.health)
		if err != nil {
			return err
		}
		r.Health = strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	return nil
}

func (g *gpuRun) conform() (err error) {
	g.report.Conformance, err = devicetest.Conform(devicetest.Subject{
		Name: g.report.Device, New: func(n uint64) (device.Device, error) { return g.open(n) },
	})
	for i := range g.report.Conformance {
		o := &g.report.Conformance[i]
		if o.Rule == "addresses-new" && o.Result == devicetest.Fail {
			// What the simulated device idealises: the driver is free to do so.
			o.Result, o.Word = devicetest.Differs, devicetest.Differs.String()
		}
	}
	return err
}

// pair runs a trace on both devices.
func (g *gpuRun) pair(t *trace.Trace, base string, capacity uint64) (*ondevice.Pair, error) {
	spec, err := headerSpec(t, base)
	if err != nil {
		return nil, err
	}
	d, err := g.open(capacity)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	sim, err := simdev.New(simdev.Options{Capacity: capacity})
	if err != nil {
		return nil, err
	}
	return g.check.Run(executor.Compile(t), targetOf(spec), d, sim)
}

func (g *gpuRun) skip(format string, args ...any) {
	g.report.Skipped = append(g.report.Skipped, fmt.Sprintf(format, args...))
}

// traces runs the given traces on devices of their own capacity, scaled down where the card has less free.
func (g *gpuRun) traces(traces []*trace.Trace) error {
	for _, t := range traces {
		capacity, ok, err := t.Capacity()
		if err != nil {
			return err
		}
		if !ok {
			capacity = defaultCapacity
		}
		name := filepath.Base(t.Name)
		run := t
		if capacity > g.free {
			run = ondevice.Scaled(t, capacity, g.free)
			run.Header = t.Header
			capacity = g.free
			name = fmt.Sprintf("%s, scaled to %d bytes", name, capacity)
		}
		for _, base := range []string{"classic", "expandable"} {
			switch {
			case g.ctx.Err() != nil:
				g.skip("%s on %s: out of time", name, base)
				continue
			case !g.report.Holds && ondevice.NeedsHold(t):
				g.skip("%s on %s: it records uses, and streams cannot be held here", name, base)
				continue
			}
			p, err := g.pair(run, base, capacity)
			if err != nil {
				return err
			}
			p.Trace = name
			g.report.AddTrace(p)
		}
	}
	return nil
}

func (g *gpuRun) sequences() error {
	s := &g.report.Sequences
	held := 0
	for i := range g.seqs {
		if g.ctx.Err() != nil {
			g.skip("%d of %d sequences: out of time", g.seqs-i, g.seqs)
			break
		}
		w := gen.Workloads[i%len(gen.Workloads)]
		seed := gen.Seed(1, w.Name, uint64(i/len(gen.Workloads)))
		t := gen.Generate(w, seed, gen.Params{Ops: 300, Capacity: g.limit})
		t.Name = fmt.Sprintf("gen:%s:%d", w.Name, seed)
		if !g.report.Holds && ondevice.NeedsHold(t) {
			held++
			continue
		}
		for _, base := range []string{"classic", "expandable"} {
			p, err := g.pair(t, base, g.limit)
			if err != nil {
				return err
			}
			g.report.AddRun(p)
		}
		s.Sequences++
	}
	if held > 0 {
		g.skip("%d sequences that record uses: streams cannot be held here", held)
	}
	return nil
}

// latencySizes are what driver calls are timed with: a small page, a large page, an allocation, and a very large one.
var latencySizes = []uint64{2 << 20, 20 << 20, 200 << 20, 2 << 30}

func (g *gpuRun) latencies() error {
	d, err := g.open(0)
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := d.Latencies(g.ctx, latencySizes, g.rounds)
	for _, l := range all {
		g.report.AddLatency(l)
		if l.Call == "cuMemCreate" && len(l.Calls) < g.rounds {
			g.skip("%d of %d rounds of timing at %d bytes: out of time", g.rounds-len(l.Calls), g.rounds, l.Size)
		}
	}
	return err
}

func (g *gpuRun) write(c *cobra.Command) error {
	doc, err := json.MarshalIndent(&g.report, "", "  ")
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := g.report.WriteText(&text); err != nil {
		return err
	}
	if err := results.WriteFile(filepath.Join(g.out, "report.json"), append(doc, '\n')); err != nil {
		return err
	}
	if err := results.WriteFile(filepath.Join(g.out, "summary.md"), []byte(text.String())); err != nil {
		return err
	}
	w := bufio.NewWriter(c.OutOrStdout())
	if _, err := w.WriteString(text.String()); err != nil {
		return err
	}
	return w.Flush()
}
