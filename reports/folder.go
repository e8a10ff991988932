package reports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/shatter-gpu/shatter/harness/results"
)

// Folder is a results folder (layout shatter.results/1, package harness/results) as renderers get it.
type Folder struct {
	Dir string
	// Run is the document, with its timing if timing.json is there; Journal has all sequences, in order of the index.
	Run     *Run
	Journal *results.Journal
}

// ErrUnfinished: a folder has a journal but no summary, since its run was cut short.
var ErrUnfinished = errors.New("the run was cut short: it has no " + results.SummaryFile)

// ReadFolder reads a results folder. One without a journal gives fs.ErrNotExist, one without a summary
// ErrUnfinished, with the folder but no Run.
func ReadFolder(dir string) (*Folder, error) {
	j, err := results.Read(dir)
	if err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir, Journal: j, Run: &Run{}}
	path := filepath.Join(dir, results.SummaryFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		f.Run = nil
		return f, fmt.Errorf("%s: %w", dir, ErrUnfinished)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, f.Run); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Run.Schema != RunSchema {
		return nil, fmt.Errorf("%s: the document is %q, and this program reads %s", path, f.Run.Schema, RunSchema)
	}
	path = filepath.Join(dir, results.TimingFile)
	data, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	f.Run.Timing = &Timing{}
	if err := json.Unmarshal(data, f.Run.Timing); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
