package conform

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// indexColumns are the columns of index.tsv that a Recorder writes.
const indexColumns = "trace\tconfig_name\tconfig\tcapacity\tfraction\tops\tooms"

// Recorder writes a folder of decision logs, as CompareLogs reads it.
type Recorder struct {
	dir   string
	lines []string // of index.tsv, without its first
}

// NewRecorder makes the folder, or goes on with one that is there.
func NewRecorder(dir string) (*Recorder, error) {
	for _, d := range []string{"traces", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	r := &Recorder{dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, "index.tsv"))
	switch {
	case os.IsNotExist(err):
		return r, nil
	case err != nil:
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if lines[0] != indexColumns {
		return nil, fmt.Errorf("%s: index.tsv has other columns than %q; name another folder", dir, indexColumns)
	}
	r.lines = lines[1:]
	return r, nil
}

// Record runs a trace on an allocator under a settings string and writes the log. A log of the same name is replaced.
func (r *Recorder) Record(alloc catalog.Spec, t *trace.Trace, conf string, fraction *float64, capacity uint64) error {
	spec := alloc
	var err error
	if conf != "" || fraction != nil {
		if spec, err = alloc.With(conf, fraction); err != nil {
			return err
		}
	}
	name := filepath.Base(t.Name)
	for _, end := range []string{".gz", ".zst", ".trace"} {
		name = strings.TrimSuffix(name, end)
	}
	share := "-"
	if fraction != nil {
		share = strconv.FormatFloat(*fraction, 'g', -1, 64)
	}
	l := Log{Trace: plainName(name), Config: configName(conf, share), Conf: conf, Capacity: capacity, Fraction: fraction}
	var rows []string
	err = readAllRows(&l, executor.Compile(t), &spec, capacity, func(row []byte) bool {
		rows = append(rows, string(row))
		return true
	})
	if err != nil {
		return err
	}
	if len(rows) != len(t.Ops) {
		return fmt.Errorf("%s: the run on %s broke off after %d of %d operations, so there is no log", t.Name, spec.Name, len(rows), len(t.Ops))
	}
	return r.Add(l, t, rows)
}

// Add writes a log whose rows are known. A log of the same name is replaced.
func (r *Recorder) Add(l Log, t *trace.Trace, rows []string) error {
	ooms := 0
	for _, row := range rows {
		if f := strings.SplitN(row, "\t", 4); len(f) > 2 && f[2] == "oom" {
			ooms++
		}
	}
	bare := &trace.Trace{Name: t.Name, Ops: t.Ops} // capacity, settings and fraction stand in the index
	if err := writeZipped(filepath.Join(r.dir, "traces", l.Trace+".trace.gz"), bare.Format()); err != nil {
		return err
	}
	text := strings.Join(executor.Columns, "\t") + "\n" + strings.Join(rows, "\n") + "\n"
	if err := writeZipped(filepath.Join(r.dir, "logs", l.Name()+".tsv.gz"), []byte(text)); err != nil {
		return err
	}
	share := "-"
	if l.Fraction != nil {
		share = strconv.FormatFloat(*l.Fraction, 'g', -1, 64)
	}
	key := l.Trace + "\t" + l.Config + "\t"
	line := fmt.Sprintf("%s%s\t%d\t%s\t%d\t%d", key, orNone(l.Conf), l.Capacity, share, len(rows), ooms)
	for i := range r.lines {
		if strings.HasPrefix(r.lines[i], key) {
			r.lines[i] = line
			return nil
		}
	}
	r.lines = append(r.lines, line)
	return nil
}

// Close writes the index.
func (r *Recorder) Close() error {
	text := indexColumns + "\n" + strings.Join(r.lines, "\n") + "\n"
	path := filepath.Join(r.dir, "index.tsv")
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// plainName keeps what a file name may have everywhere.
func plainName(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-=", c) {
			return c
		}
		return '_'
	}, s)
}

func configName(conf, fraction string) string {
	name := "default"
	if conf != "" {
		name = plainName(conf)
	}
	if fraction != "-" {
		name += "_fraction" + fraction
	}
	return name
}

func writeZipped(path string, data []byte) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
