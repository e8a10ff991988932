package catalog

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/hostvmm"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// mib reads NMiB.
func mib(s string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "MiB"), 10, 40)
	if err != nil {
		return 0, fmt.Errorf("%q is no size", s)
	}
	return n << 20, nil
}

func TestParseDevice(t *testing.T) {
	for text, want := range map[string]DeviceSpec{
		"sim":                       {Kind: "sim"},
		"sim:80MiB":                 {Kind: "sim", Capacity: 80 << 20},
		"sim:80MiB,addr=low":        {Kind: "sim", Capacity: 80 << 20, Options: simdev.Options{Order: simdev.Low}},
		"sim,addr=random:7":         {Kind: "sim", Options: simdev.Options{Order: simdev.Random, Seed: 7}},
		"sim:16MiB,addr=bump":       {Kind: "sim", Capacity: 16 << 20},
		"host:2048MiB":              {Kind: "host", Capacity: 2 << 30},
		"host:" + "1048576" + "MiB": {Kind: "host", Capacity: 1 << 40},
	} {
		if strings.HasPrefix(text, "host") && hostvmm.Supported() != nil {
			continue
		}
		want.Name = text
		got, err := ParseDevice(text, mib)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestParseDeviceErrors(t *testing.T) {
	for text, want := range map[string]string{
		"gpu":               `unknown device "gpu"; there are sim, host and cuda, as in sim:80GiB (see shatter list devices)`,
		"sim:1MiB":          `device "sim:1MiB": a device of 1048576 bytes: a simulated device has 2 MiB to 16 TiB`,
		"sim:x":             `device "sim:x": "x" is no size`,
		"sim,addr=up":       `unknown address order "up"`,
		"sim,speed=1":       `unknown option "speed=1"`,
		"sim,addr=random:x": `the seed "x" is not a number`,
		"host":              `device "host": the size is missing; write for example host:2GiB`,
		"host:1048577MiB":   `a host device has 2 MiB to 1 TiB`,
		"host:2MiB,addr=x":  `host takes no options, "addr=x" is for sim`,
		"cuda":              `the number of the GPU is missing; write for example cuda:0 or cuda:0:8GiB`,
		"cuda:x":            `the number of the GPU is missing`,
		"cuda:0:1MiB":       `take at least 2 MiB of a GPU`,
	} {
		_, err := ParseDevice(text, mib)
		require.ErrorContains(t, err, want, text)
		require.False(t, errors.Is(err, device.ErrEnvironment), text)
	}
}

// TestMissingDevices: what is not here is a fault of the environment, not of the user.
func TestMissingDevices(t *testing.T) {
	require.NoError(t, Missing("sim"))
	if err := Missing("cuda"); err != nil {
		require.ErrorIs(t, err, device.ErrEnvironment)
		_, parse := ParseDevice("cuda:0:8MiB", mib)
		require.ErrorIs(t, parse, device.ErrEnvironment)
		require.ErrorContains(t, parse, err.Error())
	}
}

func TestNewDevice(t *testing.T) {
	for _, text := range []string{"sim:64MiB", "host:64MiB"} {
		if strings.HasPrefix(text, "host") && hostvmm.Supported() != nil {
			continue
		}
		s, err := ParseDevice(text, mib)
		require.NoError(t, err)
		d, err := s.New(s.Capacity)
		require.NoError(t, err)
		free, total := d.Info()
		require.Equal(t, []uint64{64 << 20, 64 << 20}, []uint64{free, total})
		_, bytes := d.(device.Bytes)
		require.Equal(t, s.HasBytes(), bytes)
		if c, ok := d.(io.Closer); ok {
			require.NoError(t, c.Close())
		}
		d, err = s.NewSimulated(32 << 20)
		require.NoError(t, err)
		require.IsType(t, &simdev.Device{}, d)
	}
}
