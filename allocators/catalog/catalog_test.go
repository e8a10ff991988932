package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/allocators/direct"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, base string
		expandable bool
		maxSplit   uint64
	}{
		{"classic", "classic", false, caching.Off},
		{"classic@", "classic", false, caching.Off},
		{"expandable", "expandable", true, caching.Off},
		{"classic@max_split_size_mb:128", "classic", false, 128 << 20},
		{"expandable@max_split_size_mb:128,x_memory_fraction:0.5", "expandable", true, 128 << 20},
	} {
		s, err := Parse(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, []any{c.text, c.base, c.expandable, c.maxSplit},
			[]any{s.Name, s.Base, s.Settings.Expandable, s.Settings.MaxSplitSize})
	}
	s, err := Parse("direct")
	require.NoError(t, err)
	require.Equal(t, Spec{Name: "direct", Base: "direct"}, s)
	s, err = Parse("classic@max_split_size_mb:128MB")
	require.NoError(t, err)
	require.Equal(t, []string{`max_split_size_mb:128MB: read as 128; PyTorch ignores "MB" in silence`}, s.Warnings)
}

// TestParseErrors: the text says what to write instead.
func TestParseErrors(t *testing.T) {
	const which = "the name says whether segments are expandable; write "
	for _, c := range []struct{ text, want string }{
		{"", `unknown allocator ""; there are classic, expandable, direct, first-fit, best-fit, worst-fit, next-fit, buddy, torch:[PATH], so:PATH[,alloc=NAME,free=NAME,record=NAME], child:PROGRAM (see shatter list allocators)`},
		{"native", `unknown allocator "native"; there are classic, expandable, direct, first-fit, best-fit, worst-fit, next-fit, buddy, torch:[PATH], so:PATH[,alloc=NAME,free=NAME,record=NAME], child:PROGRAM (see shatter list allocators)`},
		{"Classic", `unknown allocator "Classic"; there are classic, expandable, direct, first-fit, best-fit, worst-fit, next-fit, buddy, torch:[PATH], so:PATH[,alloc=NAME,free=NAME,record=NAME], child:PROGRAM (see shatter list allocators)`},
		{"direct@max_split_size_mb:128", `allocator "direct@max_split_size_mb:128": direct takes no settings`},
		{"direct@", `allocator "direct@": direct takes no settings`},
		{"classic@expandable_segments:True", `allocator "classic@expandable_segments:True": ` + which +
			`expandable, without expandable_segments`},
		{"classic@expandable_segments:False", `allocator "classic@expandable_segments:False": ` + which +
			`classic, without expandable_segments`},
		{"expandable@expandable_segments:True", `allocator "expandable@expandable_segments:True": ` + which +
			`expandable, without expandable_segments`},
		{"classic@expandable_ segments:True", `allocator "classic@expandable_ segments:True": ` + which +
			`expandable, without expandable_segments`},
		{"expandable@max_split_size_mb:64, expandable_segments:False",
			`allocator "expandable@max_split_size_mb:64, expandable_segments:False": ` + which +
				`classic@max_split_size_mb:64, without expandable_segments`},
		{"classic@max_split_size_mb:20",
			`allocator "classic@max_split_size_mb:20": settings "max_split_size_mb:20": max_split_size_mb:20: must be at least 21 (PyTorch 2.6)`},
		{"classic@expandable_segments:true",
			`allocator "classic@expandable_segments:true": settings "expandable_segments:true": expandable_segments:true: must be True or False`},
	} {
		_, err := Parse(c.text)
		require.EqualError(t, err, c.want)
	}
}

// TestFromSettings: the name is what Parse reads back to the same allocator.
func TestFromSettings(t *testing.T) {
	half := 0.5
	for _, c := range []struct {
		conf     string
		fraction *float64
		name     string
	}{
		{"", nil, "classic"},
		{"expandable_segments:True", nil, "expandable"},
		{"expandable_segments:False", nil, "classic"},
		{"max_split_size_mb:128,expandable_segments:True", nil, "expandable@max_split_size_mb:128"},
		{"", &half, "classic@x_memory_fraction:0.5"},
		{"garbage_collection_threshold:0.6,expandable_segments:True", &half,
			"expandable@garbage_collection_threshold:0.6,x_memory_fraction:0.5"},
		{"roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb:64", nil,
			"classic@roundup_power2_divisions:[256:1,512:2,>:8],max_split_size_mb:64"},
		{"expandable_segments:True,roundup_power2_divisions:[256:1,>:8]", nil, "expandable@roundup_power2_divisions:[256:1,>:8]"},
		{"expandable_segments : True", nil, "expandable"},
		{"expandable_ segments:True", nil, "expandable"},
		{"max_split_size_mb:128,", &half, "classic@max_split_size_mb:128,x_memory_fraction:0.5"},
	} {
		s, err := FromSettings(c.conf, c.fraction)
		require.NoError(t, err, c.conf)
		require.Equal(t, c.name, s.Name, c.conf)
		again, err := Parse(s.Name)
		require.NoError(t, err, c.conf)
		s.Settings.Text, again.Settings.Text = "", ""
		require.Equal(t, s.Settings, again.Settings, c.conf)
		require.Equal(t, s.Base, again.Base)
	}
	_, err := FromSettings("bad:1", nil)
	require.ErrorContains(t, err, `settings "bad:1": unknown setting "bad"`)
}

func TestNew(t *testing.T) {
	for _, e := range Entries {
		dev, err := simdev.New(simdev.Options{Capacity: 1 << 30})
		require.NoError(t, err)
		s, err := Parse(e.Name)
		require.NoError(t, err, "every entry is a name that Parse knows")
		require.Equal(t, e.Settings, s.Settings != nil)
		a, err := s.New(dev)
		require.NoError(t, err)
		_, isDirect := a.(*direct.Allocator)
		require.Equal(t, e.Name == "direct", isDirect)
		b, err := a.Alloc(100, 0)
		require.NoError(t, err)
		require.NoError(t, a.Free(b.Addr))
	}
}
