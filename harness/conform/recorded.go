package conform

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
)

// RecordedReport is what a folder of recorded statistics and OOM messages came to.
type RecordedReport struct {
	// Files, Messages and Values were compared.
	Files, Messages, Values int
	// Skipped names the files that cannot be compared, with the reason.
	Skipped []string
	// Differences has every message and value that differs.
	Differences []RecordedDifference
}

// RecordedDifference is a message or value that differs; "(none)" stands for one that only the other side has.
type RecordedDifference struct {
	File, Figure, Want, Got string
}

func (d *RecordedDifference) String() string {
	return fmt.Sprintf("%s: %s\n  recorded %s\n  decided  %s", d.File, d.Figure, d.Want, d.Got)
}

// recording is a JSON file: what PyTorch said at the end of a trace.
type recording struct {
	Trace    string            `json:"trace"` // file name of the trace, without .gz; absent if the run was no trace
	Conf     string            `json:"conf"`
	Capacity uint64            `json:"capacity"`
	Fraction string            `json:"fraction"` // "-": the call was never made
	Messages []json.RawMessage `json:"oom_messages"`
	Stats    map[string]int64  `json:"memory_stats"`
}

// CompareRecorded replays the trace of every *.json in dir, looked for in traceDirs, and compares the text of each OOM message
// and each of torch.cuda.memory_stats(), keys both ways.
func CompareRecorded(dir string, traceDirs []string) (*RecordedReport, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	rep := &RecordedReport{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var rec recording
		if err := json.Unmarshal(data, &rec); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if rec.Trace == "" {
			rep.Skipped = append(rep.Skipped, filepath.Base(file)+": it names no trace")
			continue
		}
		t, err := findTrace(rec.Trace, traceDirs)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if t == nil {
			rep.Skipped = append(rep.Skipped, filepath.Base(file)+": there is no "+rec.Trace)
			continue
		}
		if err := rep.compare(filepath.Base(file), &rec, executor.Compile(t)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return rep, nil
}

// findTrace returns nil if no folder has the trace.
func findTrace(name string, dirs []string) (*trace.Trace, error) {
	for _, dir := range dirs {
		for _, suffix := range []string{"", ".gz", ".zst"} {
			path := filepath.Join(dir, name+suffix)
			if _, err := os.Stat(path); err == nil {
				return tracefile.Read(path)
			}
		}
	}
	return nil, nil
}

func (rep *RecordedReport) compare(file string, rec *recording, p *executor.Program) error {
	var fraction *float64
	if rec.Fraction != "" && rec.Fraction != "-" {
		f, err := strconv.ParseFloat(rec.Fraction, 64)
		if err != nil {
			return fmt.Errorf("fraction %q is not a number", rec.Fraction)
		}
		fraction = &f
	}
	spec, err := catalog.FromSettings(rec.Conf, fraction)
	if err != nil {
		return err
	}
	want := map[string]string{}
	for _, raw := range rec.Messages {
		var op int
		var text string
		if err := json.Unmarshal(raw, &[]any{&op, &text}); err != nil {
			return fmt.Errorf("oom_messages: %w", err)
		}
		want[messageAt(op)] = text
	}
	rep.Files++
	rep.Messages += len(want)
	rep.Values += len(rec.Stats)
	for key, v := range rec.Stats {
		want[key] = strconv.FormatInt(v, 10)
	}
	got, err := messagesAndStats(p, &spec, rec.Capacity)
	if err != nil {
		return err
	}
	keys := make([]string, 0, len(want))
	for key := range want {
		keys = append(keys, key)
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	orNone := func(m map[string]string, key string) string {
		if v, ok := m[key]; ok {
			return v
		}
		return "(none)"
	}
	for _, key := range keys {
		if w, g := orNone(want, key), orNone(got, key); w != g {
			rep.Differences = append(rep.Differences, RecordedDifference{file, key, w, g})
		}
	}
	return nil
}

func messageAt(op int) string { return fmt.Sprintf("message of operation %d", op) }

// messagesAndStats runs a trace and returns its OOM messages by operation and its statistics at the end.
func messagesAndStats(p *executor.Program, spec *catalog.Spec, capacity uint64) (map[string]string, error) {
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	r, err := executor.Execute(p, executor.Target{Name: spec.Name, New: spec.New}, executor.Options{
		Device: dev,
		Judge: func(s *executor.State, oom *allocators.OOMError) executor.Judgement {
			got[messageAt(s.Op)] = oom.Error()
			return executor.Judgement{}
		},
	})
	if err != nil {
		return nil, err
	}
	if len(r.Findings) > 0 {
		return nil, fmt.Errorf("the run broke off: %s", strings.TrimSpace(r.Findings[0].String()))
	}
	for _, s := range r.Stats.MemoryStats() {
		got[s.Key] = strconv.FormatInt(s.Value, 10)
	}
	return got, nil
}
