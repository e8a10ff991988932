package caching

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// TestSettings has the vectors of the configuration notes, section 9, the number and token rules of sections 2 and 3, and the
// worked examples of section 6.
func TestSettings(t *testing.T) {
	all := func(d uint64) (b [Buckets]uint64) {
		for i := range b {
			b[i] = d
		}
		return b
	}
	for _, c := range []struct {
		conf string
		want func(*Settings)
	}{
		{"", func(*Settings) {}},
		{"   ", func(*Settings) {}},
		{"max_split_size_mb:128", func(s *Settings) { s.MaxSplitSize = 134217728 }},
		{"max_split_size_mb:128,", func(s *Settings) { s.MaxSplitSize = 134217728 }},
		{" max_split _size_mb : 1 2 8 ", func(s *Settings) { s.MaxSplitSize = 134217728 }},
		{"max_split_size_mb:+128", func(s *Settings) { s.MaxSplitSize = 134217728 }},
		{"max_split_size_mb:21", func(s *Settings) { s.MaxSplitSize = 21 * mib }},
		{"max_split_size_mb:2147483647", func(s *Settings) { s.MaxSplitSize = 2147483647 * mib }},
		{"max_split_size_mb:-1", func(s *Settings) { s.MaxSplitSize = math.MaxUint64 - (1<<20 - 1) }},
		{"max_split_size_mb:64,max_split_size_mb:32", func(s *Settings) { s.MaxSplitSize = 32 * mib }},
		{"max_non_split_rounding_mb:40", func(s *Settings) { s.MaxNonSplitRounding = 40 * mib }},
		{"garbage_collection_threshold:0.8", func(s *Settings) { s.GCThreshold = 0.8 }},
		{"garbage_collection_threshold:8e-1", func(s *Settings) { s.GCThreshold = 0.8 }},
		{"garbage_collection_threshold:0x.8p0", func(s *Settings) { s.GCThreshold = 0.5 }},
		{"garbage_collection_threshold:0x.8", func(s *Settings) { s.GCThreshold = 0.5 }},
		{"garbage_collection_threshold:.5", func(s *Settings) { s.GCThreshold = 0.5 }},
		{"expandable_segments:True", func(s *Settings) { s.Expandable = true }},
		{"expandable_segments:True,expandable_segments:False", func(*Settings) {}},
		{"roundup_power2_divisions:4", func(s *Settings) { s.RoundupDivisions = all(4) }},
		{"roundup_power2_divisions:1", func(s *Settings) { s.RoundupDivisions = all(1) }},
		{"roundup_power2_divisions:[>:4]", func(s *Settings) { s.RoundupDivisions = all(4) }},
		{"roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", func(s *Settings) {
			s.RoundupDivisions = [Buckets]uint64{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8, 8}
		}},
		{"roundup_power2_divisions:[1:1,4:2,16:4]", func(s *Settings) { s.RoundupDivisions = [Buckets]uint64{1, 0, 2, 0, 4} }},
		{"roundup_power2_divisions:[16:4,1:2]", func(s *Settings) { // not sorted; only the first fills what is below it
			s.RoundupDivisions = [Buckets]uint64{2, 4, 4, 4, 4}
		}},
		{"roundup_power2_divisions:[65536:8]", func(s *Settings) { s.RoundupDivisions = all(8) }}, // clamped to the last bucket
		{"roundup_power2_divisions:[4:0,>:2]", func(s *Settings) {
			s.RoundupDivisions = all(2)
			s.RoundupDivisions[0], s.RoundupDivisions[1] = 0, 0
		}},
		{"roundup_power2_divisions:4,roundup_power2_divisions:[1:2]", func(s *Settings) { s.RoundupDivisions = [Buckets]uint64{2} }},
		{"backend:native", func(*Settings) {}},
		{"release_lock_on_cudamalloc:True,release_lock_on_hipmalloc:False,pinned_use_cuda_host_register:True," +
			"pinned_use_hip_host_register:True,pinned_num_register_threads:128,pinned_use_background_threads:False",
			func(*Settings) {}},
		{"x_memory_fraction:0.5", func(s *Settings) { s.HasFraction, s.Fraction = true, 0.5 }},
		{"x_memory_fraction:0", func(s *Settings) { s.HasFraction = true }},
		{"x_lookup_after_flush:True", func(s *Settings) { s.LookupAfterFlush = true }},
		{"x_rules:2.6", func(*Settings) {}},
	} {
		want := DefaultSettings()
		c.want(&want)
		want.Text = c.conf
		got, warnings, err := ParseSettings(c.conf)
		require.NoError(t, err, c.conf)
		require.Equal(t, want, got, c.conf)
		if !strings.Contains(c.conf, "-1") {
			require.Empty(t, warnings, c.conf)
		}
	}
}

// TestSettingsErrors has exact texts; testdata/settings-errors.txt lists a string and, below it, what is said of it.
func TestSettingsErrors(t *testing.T) {
	data, err := os.ReadFile("testdata/settings-errors.txt")
	require.NoError(t, err)
	cases := 0
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			continue
		}
		conf, want := lines[i], strings.TrimSpace(lines[i+1])
		i++
		cases++
		before := Settings{MaxSplitSize: 1, GCThreshold: 0.5, Text: "before"}
		before.Rules = rules26
		after, warnings, err := before.Apply(conf)
		require.EqualError(t, err, `settings "`+conf+`": `+want)
		require.Equal(t, before, after, "an error leaves the settings as they were")
		require.Nil(t, warnings)
	}
	require.Greater(t, cases, 30)
}

// TestSettingsWarnings: what PyTorch ignores in silence is said.
func TestSettingsWarnings(t *testing.T) {
	for _, c := range []struct{ conf, want string }{
		{"max_split_size_mb:128MB", `max_split_size_mb:128MB: read as 128; PyTorch ignores "MB" in silence`},
		{"max_split_size_mb:21.9", `max_split_size_mb:21.9: read as 21; PyTorch ignores ".9" in silence`},
		{"max_split_size_mb:1_000_000", ``}, // 1
		{"max_split_size_mb:-1", "max_split_size_mb:-1: PyTorch reads a negative number as a huge one; leave the setting out instead"},
		{"garbage_collection_threshold:0.8f", `garbage_collection_threshold:0.8f: read as 0.8; PyTorch ignores "f" in silence`},
		{"garbage_collection_threshold:0.8=1", `garbage_collection_threshold:0.8=1: read as 0.8; PyTorch ignores "=1" in silence`},
		{"roundup_power2_divisions:4x", `roundup_power2_divisions:4x: read as 4; PyTorch ignores "x" in silence`},
		{"pinned_num_register_threads:8 threads", `pinned_num_register_threads:8threads: read as 8; PyTorch ignores "threads" in silence`},
	} {
		_, warnings, err := ParseSettings(c.conf)
		if c.want == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{c.want}, warnings)
	}
}

// TestApplyResets: section 5 of the configuration notes.
func TestApplyResets(t *testing.T) {
	s, _, err := ParseSettings("max_split_size_mb:64,max_non_split_rounding_mb:40,garbage_collection_threshold:0.5," +
		"roundup_power2_divisions:4,expandable_segments:True,x_lookup_after_flush:True,x_memory_fraction:0.25")
	require.NoError(t, err)
	s, _, err = s.Apply("")
	require.NoError(t, err)
	want := DefaultSettings()
	want.MaxNonSplitRounding, want.Expandable, want.LookupAfterFlush = 40*mib, true, true
	want.HasFraction, want.Fraction = true, 0.25
	require.Equal(t, want, s)
	s, _, err = s.Apply("max_split_size_mb:64")
	require.NoError(t, err)
	require.True(t, s.Expandable && s.MaxSplitSize == 64*mib, "both in force")
}

// TestConfigure: the promise of the allocator is void once the limit was lowered, and the fraction is not set by a string.
func TestConfigure(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: 1 << 30})
	require.NoError(t, err)
	set, _, err := ParseSettings("max_split_size_mb:64,x_memory_fraction:0.5")
	require.NoError(t, err)
	a, err := New(dev, set)
	require.NoError(t, err)
	require.True(t, a.Promise().HasLimit)
	require.EqualValues(t, 512<<20, a.Promise().Limit)
	require.EqualError(t, a.Configure("bad"), `settings "bad": `+unknown("bad"))
	require.EqualError(t, a.Configure("x_memory_fraction:0.75"),
		"x_memory_fraction holds from the start; in mid-run use the operation fraction")
	require.Equal(t, set, a.Settings(), "an error changes nothing")
	require.NoError(t, a.Configure("max_split_size_mb:128,x_memory_fraction:0.5"))
	require.Empty(t, a.Promise().Void)
	require.NoError(t, a.Configure("max_split_size_mb:128,garbage_collection_threshold:0.5"))
	require.Empty(t, a.Promise().Void, "the limit stays as it is")
	require.NoError(t, a.Configure("max_split_size_mb:32"))
	require.Equal(t, "max_split_size_mb was lowered in mid-run", a.Promise().Void)
	for _, f := range []float64{-0.1, 1.1, math.NaN()} {
		require.ErrorContains(t, a.SetFraction(f), "a memory fraction lies between 0 and 1, not ")
	}
	set.Fraction = 2
	_, err = New(dev, set)
	require.EqualError(t, err, "a memory fraction lies between 0 and 1, not 2: invalid device call")
}

func unknown(key string) string {
	return `unknown setting "` + key + `" (known: ` + strings.Join(keyNames, ", ") + ")"
}
