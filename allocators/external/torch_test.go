package external_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/external"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// installed finds a PyTorch: SHATTER_TEST_TORCH names one, else it is the one that python3 imports. Without one the test is
// skipped: a PyTorch is data of a few hundred MB, no tool.
func installed(t *testing.T) *external.Installation {
	t.Helper()
	compiler(t)
	found, err := external.FindTorch(os.Getenv("SHATTER_TEST_TORCH"))
	if err != nil {
		t.Skipf("no PyTorch to test with (make torch-matrix fetches some; name one in SHATTER_TEST_TORCH): %v", err)
	}
	return found
}

// TestTorchAgainstTheModel: an installed PyTorch decides as the model does, under its default settings and with expandable
// segments; from 2.6 on all versions tried do.
func TestTorchAgainstTheModel(t *testing.T) {
	t.Parallel()
	torch := installed(t)
	dir, err := cacheFolder()
	require.NoError(t, err)
	for _, conf := range []string{"", "expandable_segments:True"} {
		set, err := external.ParseTorchSettings(conf)
		require.NoError(t, err)
		x, err := torch.Target(set, external.Options{Cache: dir})
		require.NoError(t, err)
		require.NoError(t, x.Check(), conf)
		t.Cleanup(func() { require.NoError(t, x.Close()) })
		spec, err := catalog.FromSettings(conf, nil)
		require.NoError(t, err)
		for i, w := range gen.Workloads {
			if w.Name == "graphs" {
				continue // pools that are not in use are released in the order of a hash table there
			}
			tr, capacity := generated(t, w.Name, uint64(i+1), 1500)
			want, _ := history(t, executor.Compile(tr), spec.New, capacity)
			got, res := history(t, executor.Compile(tr), x.New, capacity)
			require.Equal(t, want, got, "%s, %s, %q", torch.Label(), w.Name, conf)
			require.Empty(t, res.Findings)
		}
	}
	_, err = torch.Target(external.Settings{Conf: "no_such_setting:1"}, external.Options{Cache: dir})
	require.NoError(t, err)
}

// TestTorchFaults: the faults of PyTorch that README.md names come out as they are described there, the same way each time; in 2.6.0 and in
// every later version tried.
func TestTorchFaults(t *testing.T) {
	t.Parallel()
	torch := installed(t)
	dir, err := cacheFolder()
	require.NoError(t, err)
	files, err := filepath.Glob("testdata/torch/*.trace")
	require.NoError(t, err)
	require.Len(t, files, 5)
	for _, file := range files {
		tr, err := trace.ReadFile(file)
		require.NoError(t, err)
		conf, _ := tr.Get("conf")
		want, _ := tr.Get("finds")
		set, err := external.ParseTorchSettings(conf)
		require.NoError(t, err)
		x, err := torch.Target(set, external.Options{Cache: dir})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, x.Close()) })
		capacity, _, err := tr.Capacity()
		require.NoError(t, err)
		var details []string
		for range 3 {
			_, res := history(t, executor.Compile(tr), x.New, capacity)
			require.Len(t, res.Findings, 1, file)
			f := res.Findings[0]
			require.Equal(t, want, f.Property+"/"+f.Rule, file)
			details = append(details, f.Detail)
		}
		require.Equal(t, []string{details[0], details[0]}, details[1:], file)
	}
}

// TestFreedByDefault: what is freed keeps its contents in versions that read it (pytorch#159567), and in unknown ones.
func TestFreedByDefault(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]external.Freed{
		"2.6.0+cu124": external.FreedKept, "2.8.0": external.FreedKept, "2.9.0+cu128": external.FreedPoisoned, "2.15.0": external.FreedPoisoned,
		"": external.FreedKept, "3.0.0": external.FreedKept,
	} {
		require.Equal(t, want, external.FreedByDefault(&external.Installation{Version: version}), version)
	}
}

// TestTorchSettingsThatItRejects: the message is PyTorch's own.
func TestTorchSettingsThatItRejects(t *testing.T) {
	t.Parallel()
	torch := installed(t)
	dir, err := cacheFolder()
	require.NoError(t, err)
	x, err := torch.Target(external.Settings{Conf: "no_such_setting:1"}, external.Options{Cache: dir})
	require.NoError(t, err)
	err = x.Check()
	require.ErrorContains(t, err, "the allocator rejects its settings: ")
	require.ErrorContains(t, err, "no_such_setting")
	require.NotErrorIs(t, err, allocators.ErrEnvironment)
	require.NoError(t, x.Close())
}

// layout makes an empty PyTorch folder.
func layout(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		path := filepath.Join(dir, f)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("__version__ = '2.6.0+cu124'\n"), 0o644))
	}
	return dir
}

// TestFindTorch: each way to name one, and what is said if something is missing.
func TestFindTorch(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("PyTorch's CUDA allocator is for Linux")
	}
	whole := []string{"lib/libc10.so", "lib/libc10_cuda.so", "include/c10/cuda/CUDACachingAllocator.h", "version.py"}
	in := func(prefix string) (out []string) {
		for _, f := range whole {
			out = append(out, prefix+f)
		}
		return out
	}
	for _, prefix := range []string{"", "torch/", "lib/python3.12/site-packages/torch/", "lib/python3/dist-packages/torch/"} {
		dir := layout(t, in(prefix)...)
		found, err := external.FindTorch(dir)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, prefix), found.Dir)
		require.Equal(t, "PyTorch 2.6.0+cu124", found.Label())
	}
	for _, c := range []struct {
		files []string
		want  string
	}{
		{nil, "no PyTorch there; name a virtual environment, a site-packages folder or a torch folder (with lib/libc10.so)"},
		{[]string{"lib/libc10.so", "version.py"}, "this PyTorch 2.6.0+cu124 was built without CUDA (there is no lib/libc10_cuda.so)"},
		{[]string{"lib/libc10.so", "lib/libc10_cuda.so"}, "the headers of this PyTorch are missing (include/c10/cuda/CUDACachingAllocator.h)"},
	} {
		_, err := external.FindTorch(layout(t, c.files...))
		require.ErrorContains(t, err, c.want)
	}
	_, err := external.FindTorch("/nowhere")
	require.EqualError(t, err, "there is no PyTorch: stat /nowhere: no such file or directory")
	if _, err := exec.LookPath("python3"); err != nil {
		_, err := external.FindTorch("")
		require.ErrorContains(t, err, "there is no python3 in PATH; write torch:PATH")
	}
}

func TestTorchSettings(t *testing.T) {
	t.Parallel()
	s, err := external.ParseTorchSettings("roundup_power2_divisions:[256:1,>:8],x_memory_fraction:0.5,x_freed:poison,max_split_size_mb:64")
	require.NoError(t, err)
	half := 0.5
	require.Equal(t, external.Settings{
		Conf: "roundup_power2_divisions:[256:1,>:8],max_split_size_mb:64", Fraction: &half, Freed: external.FreedPoisoned,
	}, s)
	for text, want := range map[string]string{
		"x_memory_fraction:2":     "x_memory_fraction:2: must be a number from 0 to 1",
		"x_freed:maybe":           "x_freed:maybe: must be keep, poison or libc",
		"x_rules:2.6":             `unknown setting "x_rules"; a torch target takes x_memory_fraction and x_freed`,
		"backend:cudaMallocAsync": "backend:cudaMallocAsync is not simulated; only the native allocator is",
	} {
		_, err := external.ParseTorchSettings(text)
		require.EqualError(t, err, want)
	}
}
