package corpus

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

//go:embed accepted known
var embedded embed.FS

// Store is a corpus folder with its subfolders by state, or the one that was built into the program, which cannot be changed.
type Store struct {
	files fs.FS
	dir   string // empty if it cannot be changed
}

// Embedded is the corpus of the module: its accepted and its known cases.
func Embedded() *Store { return &Store{files: embedded} }

// Open returns the corpus in a folder, which must have an accepted or a pending one in it.
func Open(dir string) (*Store, error) {
	for _, s := range []State{Accepted, Pending} {
		if info, err := os.Stat(filepath.Join(dir, string(s))); err == nil && info.IsDir() {
			return &Store{files: os.DirFS(dir), dir: dir}, nil
		}
	}
	return nil, fmt.Errorf("%s is no corpus: it has no folder accepted or pending; name one with --dir, or make it: mkdir -p %s",
		dir, filepath.Join(dir, string(Pending)))
}

// Dir is the folder; empty for the built-in corpus.
func (s *Store) Dir() string { return s.dir }

// names are the names of the cases in a state, sorted.
func (s *Store) names(state State) ([]string, error) {
	entries, err := fs.ReadDir(s.files, string(state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".trace"); ok && !e.IsDir() {
			out = append(out, name)
		} else if !strings.HasPrefix(e.Name(), ".") {
			return nil, fmt.Errorf("%s/%s is no case: only files NAME.trace may lie there", state, e.Name())
		}
	}
	return out, nil
}

// Cases reads the cases in some states, all if none is named, by state and name.
func (s *Store) Cases(states ...State) ([]*Case, error) {
	if len(states) == 0 {
		states = States
	}
	var out []*Case
	for _, state := range states {
		names, err := s.names(state)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			c, err := s.read(state, name)
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	return out, nil
}

func (s *Store) read(state State, name string) (*Case, error) {
	f, err := s.files.Open(path.Join(string(state), name+".trace"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ParseCase(state, name, f)
}

// Unsealed reads a case without holding it against its hash, to seal it anew.
func (s *Store) Unsealed(name string) (*Case, error) {
	state, name, err := s.locate(name)
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(s.files, path.Join(string(state), name+".trace"))
	if err != nil {
		return nil, err
	}
	t, err := trace.Parse(string(state)+"/"+name+".trace", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return &Case{Name: name, State: state, Trace: t}, nil
}

// Find reads a case by its name, its path, or the only beginning of a name.
func (s *Store) Find(name string) (*Case, error) {
	state, name, err := s.locate(name)
	if err != nil {
		return nil, err
	}
	return s.read(state, name)
}

func (s *Store) locate(name string) (State, string, error) {
	wanted := strings.TrimSuffix(filepath.Base(name), ".trace")
	folder := State(filepath.Base(filepath.Dir(name)))
	var matches []Case
	for _, state := range States {
		if slices.Contains(States, folder) && folder != state {
			continue
		}
		names, err := s.names(state)
		if err != nil {
			return "", "", err
		}
		for _, n := range names {
			if n == wanted {
				return state, n, nil
			}
			if strings.HasPrefix(n, wanted) {
				matches = append(matches, Case{State: state, Name: n})
			}
		}
	}
	switch len(matches) {
	case 1:
		return matches[0].State, matches[0].Name, nil
	case 0:
		return "", "", fmt.Errorf("there is no case %q; `shatter corpus list` names them", wanted)
	}
	return "", "", fmt.Errorf("%q is the beginning of %d cases, among them %s and %s; say more of the name",
		wanted, len(matches), matches[0].Path(), matches[1].Path())
}

// Put writes a case with its hash, whole or not at all. A case of another state by that name is an error.
func (s *Store) Put(c *Case) error { return s.Replace(nil, c) }

// Move puts a case into another state.
func (s *Store) Move(c *Case, to State) error {
	old := *c
	c.State = to
	if err := s.Replace(&old, c); err != nil {
		c.State = old.State
		return err
	}
	return nil
}

// Replace writes a case in the place of another one, which may have another name or state: the new file is whole before the old
// one goes.
func (s *Store) Replace(old, c *Case) error {
	if s.dir == "" {
		return errors.New("the built-in corpus cannot be changed; run this in a clone of the module, or name a folder with --dir")
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("%s: %w", c.Path(), err)
	}
	for _, state := range States {
		other := Case{State: state, Name: c.Name}
		if _, err := fs.Stat(s.files, other.Path()); err == nil && state != c.State && (old == nil || other.Path() != old.Path()) {
			return fmt.Errorf("%s: the name is taken by %s; choose another one", c.Path(), other.Path())
		}
	}
	c.Set(keyHash, c.Hash())
	to := filepath.Join(s.dir, filepath.FromSlash(c.Path()))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := writeWhole(to, c.Text()); err != nil || old == nil || old.Path() == c.Path() {
		return err
	}
	return s.Remove(old)
}

// Remove takes a case away.
func (s *Store) Remove(c *Case) error {
	return os.Remove(filepath.Join(s.dir, filepath.FromSlash(c.Path())))
}

// Pend enters the trace of a finding among the pending cases. A finding of the same signature that is pending, known or
// accepted already is the same cause: then that case is returned, with fresh false; if it is pending and the new trace is the
// smaller one, that takes the old one's place.
func (s *Store) Pend(t *trace.Trace, signature, source string) (c *Case, fresh bool, err error) {
	cases, err := s.Cases(Pending, Known, Accepted)
	if err != nil {
		return nil, false, err
	}
	own := *t // with its comments
	c = &Case{Name: pendingName(signature, t), State: Pending, Trace: &own}
	c.Set(keySource, source)
	c.Set(keyFinding, signature)
	for _, old := range cases {
		if old.Finding() != signature {
			continue
		}
		if old.State == Pending && shrink.Less(t, old.Trace) {
			if err := s.Put(c); err != nil || c.Name == old.Name {
				return c, false, err
			}
			return c, false, s.Remove(old)
		}
		return old, false, nil
	}
	return c, true, s.Put(c)
}

// pendingName is a name until a reviewer finds a better one.
func pendingName(signature string, t *trace.Trace) string {
	name := strings.ToLower(signature)
	if len(name) > 100 {
		name = name[:100]
	}
	return name + "-" + t.ID()[:8]
}

// writeWhole writes a file whole or not at all: under a temporary name in the same folder, synced and renamed.
func writeWhole(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // without effect once it is renamed
	_, err = f.Write(data)
	for _, step := range []func() error{func() error { return f.Chmod(0o644) }, f.Sync, f.Close} {
		if e := step(); err == nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
