package hunt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/shatter-gpu/shatter/harness/trace"
)

// state is what a hunt remembers beside its population.
type state struct {
	Schema      string `json:"schema"` // shatter.hunt-state/1
	Seed        uint64 `json:"seed"`
	Evaluations int    `json:"evaluations"`
}

// Save writes the population to a folder, a trace for each figure, and what is needed to go on.
func (h *Hunter) Save(dir string) error {
	for i, k := range h.best {
		if k == nil {
			continue
		}
		t := &trace.Trace{Ops: k.Trace.Ops, Header: k.Trace.Header}
		t.Set(trace.KeyCapacity, strconv.Itoa(Capacity))
		t.Set("hunt", fmt.Sprintf("%s %g", FigureNames[i], k.Figures[i]))
		if err := trace.WriteFile(filepath.Join(dir, FigureNames[i]+".trace"), t); err != nil {
			return err
		}
	}
	for i, conf := range h.cfg.Settings {
		if k := h.growing[conf]; k != nil {
			if err := trace.WriteFile(filepath.Join(dir, fmt.Sprintf("growing-%02d.trace", i)), k.Trace); err != nil {
				return err
			}
		}
	}
	doc, err := json.MarshalIndent(state{"shatter.hunt-state/1", h.cfg.Seed, h.Evaluations}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "state.json"), append(doc, '\n'), 0o644)
}

// Load reads what Save wrote: traces to start from, and how many evaluations there were; 0 and none for a new folder.
func Load(dir string, seed uint64, read func(path string) (*trace.Trace, error)) (seeds []*trace.Trace, evaluations int, err error) {
	doc, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var s state
	if err := json.Unmarshal(doc, &s); err != nil || s.Schema != "shatter.hunt-state/1" {
		return nil, 0, fmt.Errorf("%s: not the state of a hunt; name an empty folder or one that hunt wrote", filepath.Join(dir, "state.json"))
	}
	if s.Seed != seed {
		return nil, 0, fmt.Errorf("%s holds a hunt of seed %d; go on with --seed %d, or name another folder", dir, s.Seed, s.Seed)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.trace"))
	if err != nil {
		return nil, 0, err
	}
	slices.Sort(files)
	for _, f := range files {
		t, err := read(f)
		if err != nil {
			return nil, 0, err
		}
		seeds = append(seeds, t)
	}
	return seeds, s.Evaluations, nil
}
