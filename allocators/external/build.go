package external

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The child's sources are compiled on the user's machine, against the user's own PyTorch.
//
//go:embed native
var native embed.FS

// defaultRuntime is the soname of the simulated GPU when a library names no runtime to stand in for.
const defaultRuntime = "libshattergpu.so"

// buildLimit bounds a compilation; c10's headers take a few seconds.
const buildLimit = 5 * time.Minute

// Options of a target.
type Options struct {
	// Cache is the folder that built children are kept in; empty means shatter in the user's cache folder.
	Cache string
	// Compiler is a C++ compiler; empty means the first of g++, c++ and clang++ that is found.
	Compiler string
	// Timeout of the watchdog; 0 means DefaultTimeout.
	Timeout time.Duration
}

func (o *Options) cache() (string, error) {
	if o.Cache != "" {
		return filepath.Abs(o.Cache)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", environment("there is no folder to keep built programs in: %w (set XDG_CACHE_HOME)", err)
	}
	return filepath.Join(dir, "shatter"), nil
}

// FindCompiler returns the C++ compiler that children are built with.
func FindCompiler() (string, error) {
	for _, name := range []string{"g++", "c++", "clang++"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no C++ compiler: none of g++, c++, clang++ is in PATH; install one (Debian, Ubuntu: apt install g++)")
}

func (o *Options) compiler() (string, error) {
	if o.Compiler != "" {
		return o.Compiler, nil
	}
	return FindCompiler()
}

// recipe is what a child is built from.
type recipe struct {
	backend string // torch.cpp or library.cpp
	runtime string // soname to stand in for
	version string // symbol version node of the runtime's functions; empty if none
	wanted  []string
	// The rest is of a PyTorch.
	include   string
	libraries []string // linked, in order
	cxx11     int      // _GLIBCXX_USE_CXX11_ABI
	cuda      int      // CUDART_VERSION
	stamp     string   // identifies what it is built against
}

// declared matches the functions that the simulated GPU has.
var declared = regexp.MustCompile(`(?m)^(?:API (?:int|const char\*) |UNSIMULATED\()((?:cuda|cu|nvml)[A-Z]\w*)`)

// functionName is what a function that becomes a trap must look like: it is written into a source.
var functionName = regexp.MustCompile(`^(cuda|cu|nvml)[A-Z]\w*$`)

// traps are the wanted functions that the simulated GPU does not have.
func traps(wanted []string) ([]string, error) {
	have := map[string]bool{}
	for _, name := range []string{"native/simgpu.cpp", "native/unreached.inc"} {
		source, err := native.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			have[m[1]] = true
		}
	}
	var out []string
	for _, w := range wanted {
		if !have[w] && functionName.MatchString(w) {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// build makes the child of a recipe, or finds it in the cache, and returns the program.
func (o *Options) build(r *recipe) (host string, err error) {
	compiler, err := o.compiler()
	if err != nil {
		return "", environment("%w", err)
	}
	cache, err := o.cache()
	if err != nil {
		return "", err
	}
	extra, err := traps(r.wanted)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "children", r.key(compiler, extra))
	host = filepath.Join(dir, "host")
	if _, err := os.Stat(host); err == nil {
		return host, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", environment("%w", err)
	}
	// Built apart and moved into place, so that two builds at once do no harm and an interrupted one leaves nothing.
	work, err := os.MkdirTemp(filepath.Dir(dir), ".build-*")
	if err != nil {
		return "", environment("%w", err)
	}
	defer os.RemoveAll(work)
	if err := o.compile(r, compiler, work, dir, extra); err != nil {
		return "", err
	}
	if err := os.Rename(work, dir); err != nil {
		if _, there := os.Stat(host); there == nil {
			return host, nil // another build was first
		}
		return "", environment("%w", err)
	}
	return host, nil
}

// key names the build: all that it depends on, hashed.
func (r *recipe) key(compiler string, extra []string) string {
	h := sha256.New()
	_ = fs.WalkDir(native, "native", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			data, _ := native.ReadFile(path)
			fmt.Fprintf(h, "%s %d\n", path, len(data))
			_, _ = h.Write(data)
		}
		return err
	})
	of := *r
	of.wanted = nil // of what is wanted only that counts which becomes a trap
	fmt.Fprintf(h, "%s\n%+v\n%q\n", compiler, of, extra)
	return hex.EncodeToString(h.Sum(nil))[:24]
}

// compile builds into work what will lie in dir.
func (o *Options) compile(r *recipe, compiler, work, dir string, extra []string) error {
	if err := unpack(filepath.Join(work, "src")); err != nil {
		return environment("%w", err)
	}
	var text strings.Builder
	for _, name := range extra {
		fmt.Fprintf(&text, "UNSIMULATED(%s)\n", name)
	}
	src := func(name string) string { return filepath.Join(work, "src", name) }
	if err := os.WriteFile(src("extra.inc"), []byte(text.String()), 0o644); err != nil {
		return environment("%w", err)
	}
	runtime := filepath.Join(work, r.runtime)
	args := []string{"-std=c++17", "-O2", "-fPIC", "-shared", "-o", runtime, src("simgpu.cpp"), "-Wl,-soname," + r.runtime, "-ldl"}
	if r.version != "" {
		// A symbol version is not obligatory, but without it the loader warns at every start.
		script := fmt.Sprintf("%s { global: cuda*; };\nshatter { global: cu[A-Z]*; nvml*; shatter_gpu_*; local: *; };\n", r.version)
		if err := os.WriteFile(src("versions.map"), []byte(script), 0o644); err != nil {
			return environment("%w", err)
		}
		args = append(args, "-Wl,--version-script="+src("versions.map"))
	}
	if err := run(compiler, args...); err != nil {
		return err
	}
	// A library that opens these finds empty ones that depend on the simulated GPU: a look-up in them goes on there.
	empty := src("empty.c")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		return environment("%w", err)
	}
	linked := []string{runtime}
	for _, name := range []string{"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"} {
		path := filepath.Join(work, name)
		if err := run(compiler, "-shared", "-x", "c", empty, "-x", "none", "-o", path, "-Wl,-soname,"+name, "-Wl,--no-as-needed", runtime,
			"-Wl,-rpath,$ORIGIN"); err != nil {
			return err
		}
		linked = append(linked, path)
	}
	// The host names the simulated GPU before the library under test, and by DT_RPATH: the loader then has the runtime's soname
	// already when the library asks for it, and never looks at the library's own RPATH.
	rpath := "$ORIGIN"
	for _, l := range r.libraries {
		if d := filepath.Dir(l); !strings.HasSuffix(rpath, ":"+d) {
			rpath += ":" + d
		}
	}
	var last error
	for _, std := range []string{"-std=c++17", "-std=c++20"} { // newer headers want the newer one
		args := []string{std, "-O1", "-w", "-I" + src("include"), "-o", filepath.Join(work, "host"), src("host.cpp"), src(r.backend),
			src("quarantine.cpp"), "-Wl,--no-as-needed"}
		args = append(args, linked...)
		args = append(args, r.libraries...)
		args = append(args, "-Wl,--allow-shlib-undefined", "-Wl,--disable-new-dtags,-rpath,"+rpath, "-ldl", "-rdynamic")
		if r.include != "" {
			args = append(args, "-isystem", r.include, fmt.Sprintf("-D_GLIBCXX_USE_CXX11_ABI=%d", r.cxx11), fmt.Sprintf("-DCUDART_VERSION=%d", r.cuda))
		}
		if last = run(compiler, args...); last == nil {
			return os.RemoveAll(filepath.Join(work, "src"))
		}
	}
	return last
}

// unpack writes the embedded sources.
func unpack(dir string) error {
	return fs.WalkDir(native, "native", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, "native"))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		in, err := native.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.Create(to)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			out.Close()
			return err
		}
		return out.Close()
	})
}

// run runs the compiler; an error has the beginning of what it said.
func run(compiler string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var say []string
	for _, l := range lines {
		if strings.Contains(l, "error") || len(lines) <= 5 {
			say = append(say, l)
		}
		if len(say) == 5 {
			break
		}
	}
	return environment("%s failed (%w):\n%s", filepath.Base(compiler), err, strings.Join(say, "\n"))
}
