package external

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/shatter-gpu/shatter/allocators/caching"
)

// Installation is a PyTorch.
type Installation struct {
	// Dir is its torch folder.
	Dir string
	// Version is that of torch/version.py, as 2.6.0+cu124; empty if the file is not there.
	Version string

	c10, cuda string // libraries
	include   string
}

// FindTorch looks for a PyTorch: path is a virtual environment, a site-packages folder or a torch folder; empty means the one
// that python3 imports. Errors say what is missing and what to do.
func FindTorch(path string) (*Installation, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("PyTorch's CUDA allocator comes with PyTorch for Linux only; run this in a Linux container")
	}
	asked := path
	if path == "" {
		dir, err := importedTorch()
		if err != nil {
			return nil, err
		}
		path = dir
	}
	var candidates []string
	for _, pattern := range []string{"", "torch", "lib/python3*/site-packages/torch", "lib/python3*/dist-packages/torch", "lib64/python3*/site-packages/torch"} {
		found, err := filepath.Glob(filepath.Join(path, pattern))
		if err != nil {
			return nil, fmt.Errorf("%q cannot be searched: %w", path, err)
		}
		candidates = append(candidates, found...)
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "lib", "libc10.so")); err != nil {
			continue
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		t := &Installation{Dir: abs, Version: readVersion(abs), include: filepath.Join(abs, "include")}
		t.c10, t.cuda = filepath.Join(abs, "lib", "libc10.so"), filepath.Join(abs, "lib", "libc10_cuda.so")
		return t, t.check()
	}
	if asked == "" {
		return nil, fmt.Errorf("%s: the torch that python3 imports has no lib/libc10.so", path)
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("there is no PyTorch: %w", err)
	}
	return nil, fmt.Errorf("%s: no PyTorch there; name a virtual environment, a site-packages folder or a torch folder (with lib/libc10.so)", path)
}

// importedTorch asks python3 where its torch is, without importing it.
func importedTorch() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	const ask = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
	out, err := exec.CommandContext(ctx, "python3", "-c", ask).Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("torch: alone is the PyTorch that python3 imports, and there is no python3 in PATH; write torch:PATH")
	}
	if err != nil {
		return "", fmt.Errorf("python3 cannot say where its torch is: %w; write torch:PATH", err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", errors.New("python3 has no torch; write torch:PATH with a virtual environment, or install one (pip install torch)")
	}
	return dir, nil
}

var versionLine = regexp.MustCompile(`(?m)^__version__\s*=\s*['"]([^'"]+)['"]`)

func readVersion(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "version.py"))
	if err != nil {
		return ""
	}
	if m := versionLine.FindSubmatch(data); m != nil {
		return string(m[1])
	}
	return ""
}

// check tells what is missing.
func (t *Installation) check() error {
	if _, err := os.Stat(t.cuda); err != nil {
		return fmt.Errorf("%s: this PyTorch %swas built without CUDA (there is no lib/libc10_cuda.so); install a CUDA build, no GPU is needed",
			t.Dir, spaced(t.Version))
	}
	if _, err := os.Stat(filepath.Join(t.include, "c10", "cuda", "CUDACachingAllocator.h")); err != nil {
		return fmt.Errorf("%s: the headers of this PyTorch %sare missing (include/c10/cuda/CUDACachingAllocator.h); wheels bring them, "+
			"packages of distributions have them in a -dev package", t.Dir, spaced(t.Version))
	}
	return nil
}

func spaced(s string) string {
	if s == "" {
		return ""
	}
	return s + " "
}

// Label is what reports call it.
func (t *Installation) Label() string {
	if t.Version == "" {
		return "PyTorch at " + t.Dir
	}
	return "PyTorch " + t.Version
}

// rules are those of the newest version that is not newer than this one; 2.10 has what the set of 2.11 says of it (its decisions
// were compared). Before 2.6 they are those of 2.6.
func (t *Installation) rules() string {
	best := caching.RuleVersions()[0]
	if minor := t.minor(); minor >= 0 {
		if minor == 10 {
			minor = 11
		}
		for _, v := range caching.RuleVersions() {
			var n int
			if _, err := fmt.Sscanf(v, "2.%d", &n); err == nil && n <= minor {
				best = v
			}
		}
	}
	return best
}

// minor is x of version 2.x, -1 if the version is another or not known.
func (t *Installation) minor() (n int) {
	if _, err := fmt.Sscanf(t.Version, "2.%d", &n); err != nil {
		return -1
	}
	return n
}

// freed is what becomes of freed objects where the settings do not say.
func (t *Installation) freed() Freed {
	if t.minor() >= 9 {
		return FreedPoisoned
	}
	return FreedKept
}

// Freed is what becomes of C++ objects that PyTorch has freed.
type Freed string

const (
	// FreedKept keeps their contents for a while: the decisions that PyTorch's code up to 2.8 means (the default there).
	FreedKept Freed = "keep"
	// FreedPoisoned overwrites them, so that a read after the free shows (pytorch#159567, mended in 2.9; the default from there on).
	FreedPoisoned Freed = "poison"
	// FreedLibc leaves them to the C library.
	FreedLibc Freed = "libc"
)

// Settings are those of a torch target.
type Settings struct {
	// Conf is PyTorch's settings string.
	Conf string
	// Fraction is the memory-fraction call made before the first operation, nil if none.
	Fraction *float64
	// Freed is empty for the default.
	Freed Freed
}

// ParseTorchSettings takes our own settings, x_memory_fraction and x_freed, out of a settings string; the rest is PyTorch's.
func ParseTorchSettings(text string) (Settings, error) {
	var s Settings
	var keep []string
	for _, pair := range strings.Split(text, ",") { // a comma inside a list of roundup_power2_divisions does no harm
		key, value, _ := strings.Cut(strings.TrimSpace(pair), ":")
		switch {
		case key == "x_memory_fraction":
			f, err := strconv.ParseFloat(value, 64)
			if err != nil || f < 0 || f > 1 {
				return s, fmt.Errorf("x_memory_fraction:%s: must be a number from 0 to 1", value)
			}
			s.Fraction = &f
		case key == "x_freed":
			switch s.Freed = Freed(value); s.Freed {
			case FreedKept, FreedPoisoned, FreedLibc:
			default:
				return s, fmt.Errorf("x_freed:%s: must be keep, poison or libc", value)
			}
		case strings.HasPrefix(key, "x_"):
			return s, fmt.Errorf("unknown setting %q; a torch target takes x_memory_fraction and x_freed", key)
		case key == "backend" && value != "native":
			return s, fmt.Errorf("backend:%s is not simulated; only the native allocator is", value)
		default:
			keep = append(keep, pair)
		}
	}
	s.Conf = strings.Join(keep, ",")
	return s, nil
}

// Target builds the child for this PyTorch, or finds it in the cache, and returns a target that runs its allocator.
func (t *Installation) Target(set Settings, o Options) (*Target, error) {
	cuda, err := readLibrary(t.cuda)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.cuda, err)
	}
	c10, err := readLibrary(t.c10)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.c10, err)
	}
	r := &recipe{
		backend: "torch.cpp", runtime: cuda.runtime, version: cuda.version, wanted: cuda.undefined, include: t.include,
		libraries: []string{t.cuda, t.c10}, cuda: 12000,
	}
	if m := majorVersion.FindStringSubmatch(cuda.runtime); m != nil {
		major, _ := strconv.Atoi(m[1]) // two digits
		r.cuda = 1000 * major
	}
	if c10.cxx11 || cuda.cxx11 {
		r.cxx11 = 1
	}
	if r.runtime == "" {
		r.runtime = defaultRuntime
	}
	data, err := os.ReadFile(t.cuda)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	r.stamp = hex.EncodeToString(sum[:])
	header, err := os.ReadFile(filepath.Join(t.include, "c10", "cuda", "driver_api.h"))
	if err == nil { // before 2.1 there was none
		for _, m := range driverFunction.FindAllSubmatch(header, -1) {
			r.wanted = append(r.wanted, string(m[1]))
		}
	}
	host, err := o.build(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Label(), err)
	}
	// From 2.10 on the settings stand in another variable, and the older one warns. (2.9's libc10.so knows the new one too, but its
	// CUDA allocator reads the old one only.)
	variable := "PYTORCH_CUDA_ALLOC_CONF"
	if bytes.Contains(data, newVariable) {
		variable = "PYTORCH_ALLOC_CONF"
	}
	freed := set.Freed
	if freed == "" {
		freed = t.freed()
	}
	c := Command{Path: host, Timeout: o.Timeout, Settings: set.Conf, Env: []string{
		// What the user's own environment says about PyTorch must not count, and no folder may come before the child's own.
		"PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_SHOW_CPP_STACKTRACES=0", "LD_LIBRARY_PATH", "LD_PRELOAD",
		"SHATTER_FREED=" + string(freed),
	}}
	for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"} {
		if name == variable && set.Conf != "" {
			name += "=" + set.Conf
		}
		c.Env = append(c.Env, name)
	}
	out := NewTarget(c)
	out.Label = t.Label()
	out.Fraction = set.Fraction
	// What is expected of it is the promise of its version's rules; settings that these do not know promise nothing.
	text := "x_rules:" + t.rules()
	if set.Conf != "" {
		text += "," + set.Conf
	}
	if m, _, err := caching.ParseSettings(text); err == nil {
		out.Model = &m
	}
	return out, nil
}

var (
	majorVersion   = regexp.MustCompile(`\.so\.(\d\d)`)
	newVariable    = []byte("\x00PYTORCH_ALLOC_CONF\x00")
	driverFunction = regexp.MustCompile(`\b_\(\s*((?:cu|nvml)[A-Z]\w*)`)
)
