package external_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/external"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// compiler returns the C++ compiler, or skips.
func compiler(t testing.TB) string {
	t.Helper()
	path, err := external.FindCompiler()
	if err == nil {
		return path
	}
	if os.Getenv("SHATTER_REQUIRE_TOOLS") == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}

// cacheFolder is where the children of all tests are built, once.
var cacheFolder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "shatter-external-*") })

func removeCache() {
	if dir, err := cacheFolder(); err == nil {
		os.RemoveAll(dir)
	}
}

// compiled builds an example library and returns its path.
func compiled(t testing.TB, source string, defines ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "alloc.so")
	args := []string{"-x", "c", "-O1", "-fPIC", "-shared", "-o", out, filepath.Join("testdata", source)}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	text, err := exec.Command(compiler(t), args...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// pluggable makes a target of a library.
func pluggable(t testing.TB, path string, f external.Functions) *external.Target {
	t.Helper()
	compiler(t)
	dir, err := cacheFolder()
	require.NoError(t, err)
	x, err := external.Library(path, f, external.Options{Cache: dir, Timeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	require.NoError(t, x.Check())
	return x
}

var withRecord = external.Functions{Alloc: "my_malloc", Free: "my_free", Record: "my_record"}

// found runs generated traces on a target until one has a finding, and returns it with its trace; nil if none has.
func found(t *testing.T, x *external.Target, seeds int) (*executor.Finding, *trace.Trace) {
	t.Helper()
	for _, name := range []string{"mixed", "streams", "edges"} {
		w, err := gen.Find(name)
		require.NoError(t, err)
		for seed := range seeds {
			tr := gen.Generate(w, uint64(seed+1), gen.Params{Ops: 1200})
			capacity, _, err := tr.Capacity()
			require.NoError(t, err)
			if f := judged(t, x, tr, capacity); f != nil {
				return f, tr
			}
		}
	}
	return nil, nil
}

func judged(t *testing.T, x *external.Target, tr *trace.Trace, capacity uint64) *executor.Finding {
	t.Helper()
	dev, err := sim(capacity)
	require.NoError(t, err)
	res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: "so:alloc.so", New: x.New}, executor.Options{
		Device: dev, Properties: properties.All(), Judge: properties.NewJudge(),
	})
	require.NoError(t, err)
	if len(res.Findings) == 0 {
		return nil
	}
	return &res.Findings[0]
}

// TestPluggableAllocators: the correct examples come out clean, each planted bug is found by the property that is meant for it and
// shrunk to a few operations.
func TestPluggableAllocators(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		define, property, rule string
		most                   int // operations that the shrunk trace may have; 0: it is not shrunk
	}{
		{define: "OK"},
		{"EARLY", "reuse-before-event", "pending", 5},
		{"LEAK", "everything-returned", "leak", 16},
		{"OVERLAP", "no-overlap", "live", 4},
		{"TWICE", "device-conservation", "refused-call", 0},
	} {
		start := time.Now()
		x := pluggable(t, compiled(t, "cache.c", c.define), withRecord)
		f, tr := found(t, x, 3)
		if c.property == "" {
			require.Nil(t, f)
			t.Logf("correct: nothing found in %s", time.Since(start).Round(time.Millisecond))
			continue
		}
		require.NotNil(t, f, c.define)
		require.Equal(t, []string{c.property, c.rule}, []string{f.Property, f.Rule}, "%s: %s", c.define, f)
		if c.most == 0 {
			continue
		}
		signature := f.Signature()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		r, err := shrink.Minimise(ctx, tr, func(tr *trace.Trace) shrink.Answer {
			capacity, _, err := tr.Capacity()
			if err != nil {
				return shrink.Answer{Kind: shrink.Broken, Err: err}
			}
			f := judged(t, x, tr, capacity)
			switch {
			case f == nil:
				return shrink.Answer{Kind: shrink.Passes}
			case f.Signature() != signature:
				return shrink.Answer{Kind: shrink.Different, Signature: f.Signature()}
			}
			return shrink.Answer{Kind: shrink.Same, Signature: signature, Op: f.Op}
		}, shrink.Budget{})
		cancel()
		require.NoError(t, err)
		t.Logf("%s: %s\nshrunk from %d to %d operations in %s:\n%s", c.define, f, r.Before, r.After, time.Since(start).Round(time.Millisecond), r.Trace.Format())
		require.LessOrEqual(t, r.After, c.most, c.define)
	}
}

// TestDirectLibrary: the smallest library, without a record function, is clean.
func TestDirectLibrary(t *testing.T) {
	t.Parallel()
	f, _ := found(t, pluggable(t, compiled(t, "direct.c"), external.DefaultFunctions()), 1)
	require.Nil(t, f)
}

// TestLibraryDeaths: a crash and a hang inside the library are outcomes, with the operation and the signal.
func TestLibraryDeaths(t *testing.T) {
	t.Parallel()
	tr := &trace.Trace{Name: "many"}
	for i := range 1200 {
		tr.Ops = append(tr.Ops, trace.Op{Kind: trace.Alloc, ID: uint64(i), Bytes: 512})
	}
	for _, c := range []struct {
		define, rule, detail string
		op                   int
	}{
		{"CRASH", "crashed", "the allocator crashed: SIGSEGV", 999},
		{"HANG", "hung", "the allocator hung: no answer for 5s", 99},
	} {
		f := judged(t, pluggable(t, compiled(t, "cache.c", c.define), withRecord), tr, 1<<30)
		require.NotNil(t, f)
		require.Equal(t, []any{executor.Survives, c.rule, c.detail, c.op}, []any{f.Property, f.Rule, f.Detail, f.Op})
	}
}

// TestAbandon: once told so, a session passes over what was sent ahead.
func TestAbandon(t *testing.T) {
	t.Parallel()
	command := external.CommandOf(pluggable(t, compiled(t, "direct.c"), external.DefaultFunctions()))
	c := exec.Command(command.Path, command.Args...)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	pipe, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	out := bufio.NewScanner(pipe)
	reply := func() string {
		require.True(t, out.Scan())
		return out.Text()
	}
	require.Contains(t, reply(), "abandon=yes")
	var pid int
	fmt.Fprintln(in, "start capacity=1073741824")
	_, err = fmt.Sscanf(reply(), "ok pid=%d", &pid)
	require.NoError(t, err)
	fmt.Fprintln(in, "alloc 0 512")
	require.Contains(t, reply(), "ok addr=")
	require.NoError(t, syscall.Kill(pid, syscall.SIGUSR1))
	fmt.Fprintln(in, "alloc 1 512\nfree 7\nnonsense\nend")
	require.Equal(t, "done", reply())
	fmt.Fprintln(in, "start capacity=1073741824") // the next session is not
	require.Contains(t, reply(), "ok pid=")
	fmt.Fprintln(in, "alloc 1 512\nend")
	require.Contains(t, reply(), "ok addr=")
	require.Equal(t, "done", reply())
	require.NoError(t, in.Close())
	require.NoError(t, c.Wait())
}

// TestLibraryErrors: what is wrong with a library is said before anything runs.
func TestLibraryErrors(t *testing.T) {
	t.Parallel()
	compiler(t)
	dir, err := cacheFolder()
	require.NoError(t, err)
	o := external.Options{Cache: dir}
	_, err = external.Library(compiled(t, "static.c"), external.DefaultFunctions(), o)
	require.ErrorContains(t, err, "the CUDA runtime is linked into it, so its calls cannot be seen; link it with the shared one (nvcc -cudart shared)")
	// A library of its own may be what the runtime is linked into, as that of RMM's wheels is.
	inner := compiled(t, "static.c")
	outer := filepath.Join(t.TempDir(), "outer.so")
	text, err := exec.Command(compiler(t), "-x", "c", "-fPIC", "-shared", "-o", outer, "testdata/direct.c", "-x", "none", "-Wl,--no-as-needed",
		inner, "-Wl,-rpath,"+filepath.Dir(inner)).CombinedOutput()
	require.NoError(t, err, "%s", text)
	_, err = external.Library(outer, external.DefaultFunctions(), o)
	require.ErrorContains(t, err, outer+" needs "+inner+": the CUDA runtime is linked into it")
	x, err := external.Library(compiled(t, "direct.c"), external.Functions{Alloc: "other", Free: "my_free"}, o)
	require.NoError(t, err)
	err = x.Check()
	require.ErrorIs(t, err, allocators.ErrEnvironment)
	require.ErrorContains(t, err, "the library has no function other")
	_, err = external.Library("testdata/cache.c", external.DefaultFunctions(), o)
	require.ErrorContains(t, err, "testdata/cache.c: not a library that can be loaded")
	_, err = external.Library(compiled(t, "direct.c"), external.DefaultFunctions(), external.Options{Cache: dir, Compiler: "/nowhere/g++"})
	require.ErrorIs(t, err, allocators.ErrEnvironment)
	require.ErrorContains(t, err, "g++ failed")

	for text, want := range map[string]string{
		"":               "the library's path is missing",
		"a.so,alloc":     `"alloc": write alloc=NAME, free=NAME or record=NAME`,
		"a.so,malloc=my": `unknown option "malloc=my"; there are alloc=NAME, free=NAME and record=NAME`,
	} {
		_, _, err := external.ParseLibrary(text)
		require.ErrorContains(t, err, want)
	}
	path, f, err := external.ParseLibrary("a.so,alloc=x,free=y,record=z")
	require.NoError(t, err)
	require.Equal(t, []any{"a.so", external.Functions{Alloc: "x", Free: "y", Record: "z"}}, []any{path, f})
}

// BenchmarkLibrary is operations through the pipe in a batch, everything checked and nothing.
func BenchmarkLibrary(b *testing.B) {
	x := pluggable(b, compiled(b, "direct.c"), external.DefaultFunctions())
	tr := &trace.Trace{Name: "pairs"}
	for i := range 10000 {
		tr.Ops = append(tr.Ops, trace.Op{Kind: trace.Alloc, ID: uint64(i), Bytes: 512}, trace.Op{Kind: trace.Free, ID: uint64(i)})
	}
	p := executor.Compile(tr)
	for _, checked := range []bool{false, true} {
		b.Run(fmt.Sprintf("checked=%t", checked), func(b *testing.B) {
			for b.Loop() {
				dev, err := sim(1 << 30)
				require.NoError(b, err)
				o := executor.Options{Device: dev}
				if checked {
					o.Properties = properties.All()
				}
				_, err = executor.Execute(p, executor.Target{Name: "so", New: x.New}, o)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.N)*float64(p.Len())/b.Elapsed().Seconds(), "ops/s")
		})
	}
}
