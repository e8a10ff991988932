// Package conform compares decisions with recorded ones: decision logs, row by row and column by column, and the `# expect:`
// lines of traces, figure by figure. In go folders; out come counts and the first difference of each log or expectation.
package conform

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/tracefile"
)

// Log is one recorded decision log with what it was recorded under (a line of index.tsv).
type Log struct {
	Trace, Config, Conf string
	Capacity            uint64
	Fraction            *float64
	Path                string // of the log
	TracePath           string
}

// Name is what reports call the log.
func (l *Log) Name() string { return l.Trace + "__" + l.Config }

// Difference is the first row at which a log and the model disagree.
type Difference struct {
	Log    string
	Line   int // of the log, 1-based
	Column string
	Want   string // the recorded row
	Got    string
}

func (d *Difference) String() string {
	return fmt.Sprintf("%s: line %d: column %s differs\n  recorded %s\n  decided  %s", d.Log, d.Line, d.Column, d.Want, d.Got)
}

// LogReport is what a folder of logs came to.
type LogReport struct {
	Logs, Rows, Divergent int
	// Rejected of the divergent logs were not run: the allocator rejects their settings.
	Rejected int
	// Differences has the first difference of each divergent log, in order of the index.
	Differences []Difference
	// Pools says that a trace opens private pools.
	Pools bool
}

// IsLogFolder tells whether a folder holds decision logs.
func IsLogFolder(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "index.tsv"))
	return err == nil
}

// ReadIndex reads index.tsv of a folder with traces/ and logs/.
func ReadIndex(dir string) ([]Log, error) {
	logs, err := ReadFolder(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	for i := range logs {
		logs[i].Path, logs[i].TracePath = filepath.Join(dir, logs[i].Path), filepath.Join(dir, logs[i].TracePath)
	}
	return logs, nil
}

// ReadFolder is ReadIndex on a file system; the paths are names there.
func ReadFolder(folder fs.FS) ([]Log, error) {
	const path = "index.tsv"
	data, err := fs.ReadFile(folder, path)
	if err != nil {
		return nil, err
	}
	var logs []Log
	for i, line := range strings.Split(strings.TrimRight(string(data), "\n"), "\n") {
		if i == 0 {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) < 5 {
			return nil, fmt.Errorf("%s:%d: %d columns, at least 5 expected (trace, config_name, config, capacity, fraction)", path, i+1, len(f))
		}
		l := Log{Trace: f[0], Config: f[1]}
		if f[2] != "-" {
			l.Conf = f[2]
		}
		if l.Capacity, err = strconv.ParseUint(f[3], 10, 64); err != nil {
			return nil, fmt.Errorf("%s:%d: capacity %q is not a number of bytes", path, i+1, f[3])
		}
		if f[4] != "-" {
			v, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: fraction %q is not a number", path, i+1, f[4])
			}
			l.Fraction = &v
		}
		l.Path, l.TracePath = "logs/"+l.Name()+".tsv.gz", "traces/"+l.Trace+".trace.gz"
		logs = append(logs, l)
	}
	return logs, nil
}

// CompareLogs replays every log of a folder. progress, if not nil, is called after each, one call at a time.
func CompareLogs(dir string, progress func(done, total int)) (*LogReport, error) {
	return CompareLogsOn(dir, nil, progress)
}

// CompareLogsOn is CompareLogs on another allocator: alloc, which is given the settings and the fraction of each log (nil: the
// model). Settings that it rejects make a log divergent at line 0.
func CompareLogsOn(dir string, alloc *catalog.Spec, progress func(done, total int)) (*LogReport, error) {
	logs, err := ReadIndex(dir)
	if err != nil {
		return nil, err
	}
	programs, err := readPrograms(logs)
	if err != nil {
		return nil, err
	}
	type answer struct {
		rows int
		diff *Difference
		err  error
	}
	answers := make([]answer, len(logs))
	each(len(logs), progress, func(i int) {
		a := &answers[i]
		a.rows, a.diff, a.err = compareLog(&logs[i], programs[logs[i].Trace], alloc)
	})
	rep := &LogReport{Logs: len(logs)}
	for _, p := range programs {
		for i := range p.Trace.Ops {
			rep.Pools = rep.Pools || p.Trace.Ops[i].Kind.OnPool()
		}
	}
	for _, a := range answers {
		if a.err != nil {
			return nil, a.err
		}
		rep.Rows += a.rows
		if a.diff != nil {
			rep.Divergent++
			if a.diff.Line == 0 {
				rep.Rejected++
			}
			rep.Differences = append(rep.Differences, *a.diff)
		}
	}
	return rep, nil
}

// each calls do with every index below n, on all cores at once. progress, if not nil, is called after each, one call at a time.
func each(n int, progress func(done, total int), do func(i int)) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next, done := 0, 0
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				do(i)
				mu.Lock()
				done++
				if progress != nil {
					progress(done, n)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func readPrograms(logs []Log) (map[string]*executor.Program, error) {
	programs := map[string]*executor.Program{}
	for i := range logs {
		l := &logs[i]
		if programs[l.Trace] != nil {
			continue
		}
		t, err := tracefile.Read(l.TracePath)
		if err != nil {
			return nil, err
		}
		programs[l.Trace] = executor.Compile(t)
	}
	return programs, nil
}

// compareLog replays one log and returns its rows and the first difference.
func compareLog(l *Log, p *executor.Program, alloc *catalog.Spec) (rows int, diff *Difference, err error) {
	f, err := os.Open(l.Path)
	if err != nil {
		return 0, nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w; fetch it again", l.Path, err)
	}
	in := bufio.NewReaderSize(z, 1<<16)
	line := func() ([]byte, error) {
		s, err := in.ReadSlice('\n')
		if err != nil && !(errors.Is(err, io.EOF) && len(s) > 0) {
			return nil, err
		}
		return bytes.TrimSuffix(s, []byte("\n")), nil
	}
	header, err := line()
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", l.Path, err)
	}
	got := strings.Join(executor.Columns, "\t")
	addressed := string(header) == got+"\t"+addressColumn
	if !addressed && string(header) != got {
		return 0, nil, fmt.Errorf("%s:1: the columns are not those of a decision log: %q, expected %q", l.Path, header, got)
	}
	var spec catalog.Spec
	if alloc != nil {
		if spec, err = alloc.With(l.Conf, l.Fraction); err != nil && !errors.Is(err, allocators.ErrEnvironment) {
			return 0, &Difference{l.Name(), 0, "settings", orNone(l.Conf), err.Error()}, nil
		}
	} else {
		spec, err = catalog.FromSettings(l.Conf, l.Fraction)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", l.Name(), err)
	}
	sim, err := simdev.New(simdev.Options{Capacity: l.Capacity})
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", l.Name(), err)
	}
	var dev device.Device = sim
	if addressed {
		rest, err := io.ReadAll(in)
		if err != nil {
			return 0, nil, fmt.Errorf("%s: %w", l.Path, err)
		}
		dev = newPlaced(sim, bases(rest))
		in = bufio.NewReaderSize(bytes.NewReader(rest), 1<<16)
	}
	var buf []byte
	var fault error
	opts := executor.Options{Device: dev, OnRow: func(w *executor.Row) {
		if diff != nil || fault != nil {
			return
		}
		want, err := line()
		if err != nil {
			fault = fmt.Errorf("%s: the log ends after %d rows, the trace goes on: %w", l.Path, rows, err)
			return
		}
		rows++
		buf = w.Append(buf[:0])
		if addressed {
			buf = append(buf, "\t?"...)
		}
		if !bytes.Equal(buf, want) {
			if column := firstDifference(string(want), string(buf)); column != "" {
				diff = &Difference{l.Name(), rows + 1, column, string(want), string(buf)}
			}
		}
	}}
	r, err := executor.Start(p, executor.Target{Name: spec.Name, New: spec.New}, opts)
	if err != nil {
		return 0, nil, err
	}
	defer r.Leave()
	for r.More() && diff == nil && fault == nil {
		if err := r.Step(); err != nil {
			return rows, nil, err
		}
	}
	if fault != nil {
		return rows, nil, fault
	}
	if extra, err := line(); diff == nil && err == nil {
		got := "(the trace has ended)"
		if f := r.Result().Findings; len(f) > 0 {
			got = f[0].String() // a call that failed ends the run
		}
		diff = &Difference{l.Name(), rows + 2, "op", string(extra), got}
	}
	return rows, diff, nil
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// firstDifference names the first column that differs; `?`, what an allocator did not tell, is not compared.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\t"), strings.Split(got, "\t")
	for i, c := range executor.Columns {
		if i >= len(w) || i >= len(g) {
			return c
		}
		if w[i] != "?" && g[i] != "?" && w[i] != g[i] {
			return c
		}
	}
	if len(w) != len(g) {
		return executor.Columns[len(executor.Columns)-1]
	}
	return ""
}
