package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// TestEveryKnownIssueIsRecognised: with known issues off, the finding of each is taken for that issue and for no other.
func TestEveryKnownIssueIsRecognised(t *testing.T) {
	shown := map[string]struct {
		alloc, text string
		capacity    uint64
	}{
		properties.Known189504: {"classic", "alloc 0 1\nalloc 1 1048065\nrecord 1 stream=1\nfree 1\nalloc 2 1048065\n", 2 << 20},
		properties.Known175015: {"classic", "alloc 0 1\npool begin 1\nrecord 0 stream=1\nuse 0 stream=1\nfree 0\npool end 1\nalloc 1 1\n", 2 << 20},
		properties.Known159674: {"classic@max_split_size_mb:27", "pool begin 1\nalloc 0 27262977\nfree 0\nalloc 1 29360129\n", 30 << 20},
		properties.Known193400: {"expandable@max_split_size_mb:128", "alloc 0 36699649\nalloc 1 97517057\n", 1 << 30},
	}
	require.Len(t, properties.KnownIssues, len(shown))
	f := targetFlags{known: "off"}
	for id, c := range shown {
		tr, err := trace.ParseString(id, c.text)
		require.NoError(t, err)
		spec, err := catalog.Parse(c.alloc)
		require.NoError(t, err)
		newDevice := func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) }
		dev, err := newDevice(c.capacity)
		require.NoError(t, err)
		res, err := executor.Execute(executor.Compile(tr), targetOf(spec),
			executor.Options{Device: dev, Properties: f.properties(), Judge: f.judge()()})
		require.NoError(t, err)
		if len(res.Findings) == 0 {
			v, err := executor.Relate(&executor.Case{
				Trace: tr, Target: targetOf(spec), Capacity: c.capacity, NewDevice: newDevice, Conf: confOf(spec), With: settingsFor(spec),
			}, f.relations())
			require.NoError(t, err)
			require.NotNil(t, v, id)
			res.Findings = append(res.Findings, *v)
		}
		for _, k := range properties.KnownIssues {
			require.Equal(t, k.ID == id, (&soughtIssue{ID: k.ID}).explains(&res.Findings[0]), "%s: %s", k.ID, &res.Findings[0])
		}
	}
}

// TestKnownIssuesWithATime: the time of a seed can be said, and what is not found in it is a failure.
func TestKnownIssuesWithATime(t *testing.T) {
	var out, log bytes.Buffer
	require.Equal(t, 1, run(context.Background(), []string{"selftest", "--known-issues", "--seeds", "1", "--time", "1ns"}, &out, &log), log.String())
	require.Equal(t, len(properties.KnownIssues), strings.Count(out.String(), "0 of 1"), out.String())
}
