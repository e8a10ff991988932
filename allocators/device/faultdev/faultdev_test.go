package faultdev_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/devicetest"
	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

const page = 2 << 20

// size reads N or NMiB; the harness's parser is not for packages below it.
func size(s string) (uint64, error) {
	digits, mib := strings.CutSuffix(s, "MiB")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no size", s)
	}
	if mib {
		n <<= 20
	}
	return n, nil
}

func plan(t *testing.T, text string) faultdev.Plan {
	t.Helper()
	p, err := faultdev.Parse(text, size)
	require.NoError(t, err)
	return p
}

func TestPlanRoundTrip(t *testing.T) {
	for _, c := range []struct{ text, printed string }{
		{"fail map nth 3", "fail map nth 3"},
		{" fail  unmap nth 2 times 4 ", "fail unmap nth 2 times 4"},
		{"fail sync nth 1 times 1", "fail sync nth 1"},
		{"oom create after 40MiB", "oom create after 41943040"},
		{"oom create after 0", "oom create after 0"},
		{"oom map nth 2", "oom map nth 2"},
		{"oom malloc nth 5;foreign 2MiB at op 0", "oom malloc nth 5; foreign 2097152 at op 0"},
	} {
		p := plan(t, c.text)
		require.Equal(t, c.printed, p.String())
		require.Equal(t, p, plan(t, c.printed))
	}
}

func TestPlanErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                          `rule "": not a rule`,
		"fail map nth 3;":           `rule "": not a rule`,
		"fail mop nth 3":            `unknown call "mop", there are malloc, free,`,
		"fail map nth 0":            `"0" is not a number from 1 up`,
		"fail map nth x":            `"x" is not a number`,
		"fail map nth 1 times 0":    `"0" is not a number from 1 up`,
		"fail map after 2MiB":       "not a rule",
		"oom unmap nth 1":           "unmap takes no memory",
		"oom map after 2MiB":        "not a rule",
		"oom create after 2 nth 1":  "not a rule",
		"oom create after lots":     `"lots" is no size`,
		"foreign 2MiB at op -1":     `"-1" is not a number from 0 up`,
		"foreign 2MiB at 1":         "not a rule",
		"fail map nth 1 times 2 ok": "not a rule",
	} {
		_, err := faultdev.Parse(text, size)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "write `fail CALL nth N", text)
	}
}

// TestFaults: the calls that the plan names fail, without effect, and no others.
func TestFaults(t *testing.T) {
	sim, err := simdev.New(simdev.Options{Capacity: 64 * page})
	require.NoError(t, err)
	d := faultdev.New(sim, plan(t, "fail map nth 2 times 2; oom create after 8MiB; oom malloc nth 2; foreign 4MiB at op 7"))
	a, err := d.Reserve(8 * page)
	require.NoError(t, err)
	var h [4]device.Handle
	for i := range h {
		h[i], err = d.Create(page)
		require.NoError(t, err)
	}
	_, err = d.Create(page)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	require.ErrorContains(t, err, "injected fault at create call 5 (oom create after 8388608)")
	var failed []int
	for i := range h {
		if err := d.Map(a+device.Addr(i)*page, page, h[i]); err != nil {
			require.ErrorIs(t, err, device.ErrDriver)
			failed = append(failed, i)
		}
	}
	require.Equal(t, []int{1, 2}, failed)
	require.NoError(t, d.Map(a+page, page, h[1]))
	require.Equal(t, faultdev.Held{Reservations: 1, Chunks: 4, Mappings: 3}, d.Held())
	hits := d.TakeHits()
	require.Len(t, hits, 3)
	require.Equal(t, faultdev.Hit{Rule: faultdev.Rule{Kind: faultdev.Fail, Call: faultdev.Map, Nth: 2, Times: 2}, N: 3}, hits[2])
	require.Empty(t, d.TakeHits())

	// Paused calls neither fail nor count.
	d.Pause()
	_, err = d.Create(page)
	require.NoError(t, err)
	d.Resume()
	_, err = d.Malloc(1)
	require.NoError(t, err)
	_, err = d.Malloc(1)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	_, err = d.Malloc(1)
	require.NoError(t, err)

	bytes, ok := d.ForeignAt(7)
	require.True(t, ok)
	require.EqualValues(t, 4<<20, bytes)
	_, ok = d.ForeignAt(8)
	require.False(t, ok)
}

// TestConform: without a plan it is the device that it wraps.
func TestConform(t *testing.T) {
	out, err := devicetest.Conform(devicetest.Subject{Name: "faultdev", New: func(n uint64) (device.Device, error) {
		sim, err := simdev.New(simdev.Options{Capacity: n})
		return faultdev.New(sim, nil), err
	}})
	require.NoError(t, err)
	for _, o := range out {
		require.NotEqual(t, devicetest.Fail, o.Result, "%s: %s", o.Rule, o.Detail)
	}
}
