package external

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Functions names the functions of a library with the C ABI of torch.cuda.memory.CUDAPluggableAllocator.
type Functions struct {
	Alloc, Free string
	Record      string // optional: what is given to its set_record_stream_fn
}

// DefaultFunctions are the names in PyTorch's documentation.
func DefaultFunctions() Functions { return Functions{Alloc: "my_malloc", Free: "my_free"} }

// ParseLibrary reads PATH[,alloc=NAME,free=NAME,record=NAME].
func ParseLibrary(text string) (path string, f Functions, err error) {
	parts := strings.Split(text, ",")
	f = DefaultFunctions()
	for _, p := range parts[1:] {
		key, value, _ := strings.Cut(p, "=")
		switch {
		case value == "":
			return "", f, fmt.Errorf("%q: write alloc=NAME, free=NAME or record=NAME", p)
		case key == "alloc":
			f.Alloc = value
		case key == "free":
			f.Free = value
		case key == "record":
			f.Record = value
		default:
			return "", f, fmt.Errorf("unknown option %q; there are alloc=NAME, free=NAME and record=NAME", p)
		}
	}
	if parts[0] == "" {
		return "", f, errors.New("the library's path is missing: so:PATH[,alloc=NAME,free=NAME,record=NAME]")
	}
	return parts[0], f, nil
}

// Library builds the child for a pluggable allocator, or finds it in the cache, and returns a target that runs it.
func Library(path string, f Functions, o Options) (*Target, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	l, err := readLibrary(path)
	if err != nil {
		return nil, fmt.Errorf("%s: not a library that can be loaded: %w", path, err)
	}
	if l.static {
		return nil, linkedIn(path)
	}
	r := &recipe{backend: "library.cpp", runtime: l.runtime, version: l.version, wanted: l.undefined}
	if err := follow(path, l, r, map[string]bool{}); err != nil {
		return nil, err
	}
	if r.runtime == "" {
		r.runtime = defaultRuntime
	}
	host, err := o.build(r)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	c := Command{Path: host, Args: []string{path, f.Alloc, f.Free}, Timeout: o.Timeout, Env: []string{"SHATTER_FREED=libc"}}
	if f.Record != "" {
		c.Args = append(c.Args, f.Record)
	}
	t := NewTarget(c)
	t.Label = filepath.Base(path) + " " + hex.EncodeToString(sum[:])[:8]
	return t, nil
}

func linkedIn(path string) error {
	return fmt.Errorf("%s: the CUDA runtime is linked into it, so its calls cannot be seen; link it with the shared one (nvcc -cudart shared)", path)
}

// follow adds what the libraries that a library needs want of CUDA. They are looked for where the loader does: in the folders
// of LD_LIBRARY_PATH and in those that the library names; and beside it.
func follow(path string, l *library, r *recipe, seen map[string]bool) error {
	dirs := slices.Concat(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), l.search, []string{filepath.Dir(path)})
	for _, n := range l.needed {
		if runtimeName.MatchString(n) {
			continue
		}
		for _, dir := range dirs {
			next := filepath.Join(dir, n)
			if strings.Contains(n, "/") {
				next = n // then the loader searches no folder
			}
			if seen[next] {
				break
			}
			m, err := readLibrary(next)
			if err != nil {
				continue // not there; in the end the loader finds it, or says that it cannot
			}
			seen[next] = true
			if m.static {
				return fmt.Errorf("%s needs %w", path, linkedIn(next))
			}
			r.wanted = append(r.wanted, m.undefined...)
			if r.runtime == "" {
				r.runtime, r.version = m.runtime, m.version
			}
			if err := follow(next, m, r, seen); err != nil {
				return err
			}
			break
		}
	}
	return nil
}
