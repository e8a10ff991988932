package results

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/shatter-gpu/shatter/harness/measure"
)

// ErrDamaged: a journal is not what a run wrote.
var ErrDamaged = errors.New("damaged journal")

// Journal is a run as read from a folder.
type Journal struct {
	Header
	Sequences []*Sequence // in order of the index
	// Torn says that the last line was cut short: its sequence is not among them. whole is the bytes before it.
	Torn  bool
	whole int64
}

// Indices are the sequences that are there.
func (j *Journal) Indices() map[int]bool {
	out := make(map[int]bool, len(j.Sequences))
	for _, s := range j.Sequences {
		out[s.Index] = true
	}
	return out
}

// Read reads the journal of a folder. A last line that was cut short is left out; any other fault wraps ErrDamaged and names the
// line. A folder without a journal gives fs.ErrNotExist.
func Read(dir string) (*Journal, error) {
	data, err := os.ReadFile(filepath.Join(dir, JournalFile))
	if err != nil {
		return nil, err
	}
	j, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, JournalFile), err)
	}
	return j, nil
}

func parse(data []byte) (*Journal, error) {
	j := &Journal{}
	seen := map[int]int{} // line by index
	for line := 1; len(data) > 0; line++ {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			j.Torn = true
			break
		}
		text := data[:end]
		data = data[end+1:]
		if line == 1 {
			if err := j.readHeader(text); err != nil {
				return nil, err
			}
		} else {
			s := &Sequence{params: j.Params}
			if err := json.Unmarshal(text, s); err != nil {
				return nil, fmt.Errorf("%w: line %d: %w", ErrDamaged, line, err)
			}
			if err := j.check(s); err != nil {
				return nil, fmt.Errorf("%w: line %d: %w", ErrDamaged, line, err)
			}
			if at, twice := seen[s.Index]; twice {
				return nil, fmt.Errorf("%w: line %d: sequence %d stands on line %d already", ErrDamaged, line, s.Index, at)
			}
			seen[s.Index] = line
			j.Sequences = append(j.Sequences, s)
		}
		j.whole += int64(end + 1)
	}
	if j.Schema == "" {
		return nil, fmt.Errorf("%w: line 1: no header, which is written first", ErrDamaged)
	}
	j.Sort()
	return j, nil
}

// Sort puts the sequences in order of the index, after some were appended.
func (j *Journal) Sort() {
	slices.SortFunc(j.Sequences, func(a, b *Sequence) int { return a.Index - b.Index })
}

func (j *Journal) readHeader(text []byte) error {
	if err := json.Unmarshal(text, &j.Header); err != nil {
		return fmt.Errorf("%w: line 1: %w", ErrDamaged, err)
	}
	if j.Schema != Schema {
		return fmt.Errorf("the layout is %q, and this program reads %s; use the program that made it", j.Schema, Schema)
	}
	if j.Shards < 1 || j.Shard < 0 || j.Shard >= j.Shards || j.Header.Sequences < 0 {
		return fmt.Errorf("%w: line 1: shard %d of %d, %d sequences", ErrDamaged, j.Shard, j.Shards, j.Header.Sequences)
	}
	return nil
}

// check holds a sequence against the header.
func (j *Journal) check(s *Sequence) error {
	if s.Index < 0 || s.Index%j.Shards != j.Shard {
		return fmt.Errorf("sequence %d is none of shard %d/%d", s.Index, j.Shard, j.Shards)
	}
	if len(s.Runs) != len(j.Allocators) {
		return fmt.Errorf("sequence %d has %d runs for %d allocators", s.Index, len(s.Runs), len(j.Allocators))
	}
	for i := range s.Runs {
		if s.Runs[i].Target != j.Allocators[i] {
			return fmt.Errorf("sequence %d: run %d is on %q, not %q", s.Index, i, s.Runs[i].Target, j.Allocators[i])
		}
		if n := len(s.Runs[i].DeviceCalls); n != len(callNames) {
			return fmt.Errorf("sequence %d: run %d counts %d kinds of device calls; there are %d", s.Index, i, n, len(callNames))
		}
		if m := s.Runs[i].Measures; m != nil && len(m.Lives) != len(measure.Scarce) {
			return fmt.Errorf("sequence %d: run %d has %d scarce capacities; there are %d", s.Index, i, len(m.Lives), len(measure.Scarce))
		}
	}
	return nil
}

// syncEvery is how long a finished sequence may be with the operating system only. A kill loses nothing; a power cut that much.
const syncEvery = time.Second

// Writer appends to a journal. It is used by one goroutine at a time.
type Writer struct {
	f      *os.File
	line   bytes.Buffer
	synced time.Time
}

// Create starts a journal in a folder, which must have none. The header is on disk when it returns.
func Create(dir string, h Header) (*Writer, error) {
	path := filepath.Join(dir, JournalFile)
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s: %w", path, os.ErrExist)
	}
	// Whole or not at all: there is never a journal without a header.
	if err := Rewrite(dir, &Journal{Header: h}); err != nil {
		return nil, err
	}
	return open(path)
}

// Rewrite writes a journal anew, in order of the index.
func Rewrite(dir string, j *Journal) error {
	j.Schema = Schema
	return WriteWith(filepath.Join(dir, JournalFile), func(w io.Writer) error {
		buf := bufio.NewWriter(w)
		e := json.NewEncoder(buf)
		if err := e.Encode(j.Header); err != nil {
			return err
		}
		for _, s := range j.Sequences {
			if err := e.Encode(s); err != nil {
				return err
			}
		}
		return buf.Flush()
	})
}

// Continue opens a journal that was read, to append to it; a torn last line is cut off, and temporary files of a writer that was
// killed are removed.
func Continue(dir string, j *Journal) (*Writer, error) {
	for _, d := range []string{dir, filepath.Join(dir, FindingsDir)} {
		if err := removeTemporary(d); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, JournalFile)
	if j.Torn {
		if err := os.Truncate(path, j.whole); err != nil {
			return nil, err
		}
	}
	return open(path)
}

// removeTemporary removes what a writer of ours left under a temporary name.
func removeTemporary(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		for _, of := range []string{JournalFile, TableFile, SummaryFile, TimingFile, "write-test", ".trace.tmp"} {
			name := e.Name()
			if strings.HasPrefix(name, "."+of) || of[0] == '.' && name[0] == '.' && strings.Contains(name, of) {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

func open(path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	return &Writer{f: f, synced: time.Now()}, nil
}

// Append writes a finished sequence, in one call, and syncs once a second.
func (w *Writer) Append(s *Sequence) error {
	w.line.Reset()
	if err := json.NewEncoder(&w.line).Encode(s); err != nil {
		return err
	}
	if _, err := w.f.Write(w.line.Bytes()); err != nil {
		return err
	}
	if now := time.Now(); now.Sub(w.synced) >= syncEvery {
		w.synced = now
		return w.f.Sync()
	}
	return nil
}

// Close syncs and closes.
func (w *Writer) Close() error {
	return errors.Join(w.f.Sync(), w.f.Close())
}

// WriteFile writes to a temporary name, syncs and renames, so that a file is there whole or not at all.
func WriteFile(path string, data []byte) error {
	return WriteWith(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// WriteWith is WriteFile for what is written piece by piece.
func WriteWith(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err = write(f); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	syncDir(filepath.Dir(path))
	return nil
}

// syncDir makes a rename last over a power cut, where folders can be synced.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
}
