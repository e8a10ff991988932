package devicetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/devicetest"
	"github.com/shatter-gpu/shatter/allocators/device/hostvmm"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

var subjects = []devicetest.Subject{
	{Name: "sim", New: func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) }},
	{
		Name: "sim,addr=low", New: func(n uint64) (device.Device, error) {
			return simdev.New(simdev.Options{Capacity: n, Order: simdev.Low})
		},
		Differs: map[string]string{"addresses-new": "the lowest free address is used again, that is what the option is for"},
	},
	{
		Name: "host", New: func(n uint64) (device.Device, error) { return hostvmm.New(hostvmm.Options{Capacity: n}) },
		Differs: map[string]string{"addresses-new": "the lowest free address is used again, as drivers do; the simulated device idealises this"},
	},
}

// TestConform: every device keeps every rule, or differs as documented. With -v it prints the table.
func TestConform(t *testing.T) {
	var names []string
	var all [][]devicetest.Outcome
	for _, s := range subjects {
		if s.Name == "host" && hostvmm.Supported() != nil {
			t.Logf("host: %v", hostvmm.Supported())
			continue
		}
		out, err := devicetest.Conform(s)
		require.NoError(t, err)
		for _, o := range out {
			require.NotEqual(t, devicetest.Fail, o.Result, "%s breaks %s: %s", s.Name, o.Rule, o.Detail)
		}
		names, all = append(names, s.Name), append(all, out)
	}
	t.Logf("\n%s", devicetest.Table(names, all))
}

// forgetful is a device with a mistake that each rule's opposite must find.
type forgetful struct {
	device.Device
	aliased device.Handle
}

// Create hands the same chunk out twice.
func (d *forgetful) Create(size uint64) (device.Handle, error) {
	if d.aliased != 0 {
		return d.aliased, nil
	}
	h, err := d.Device.Create(size)
	d.aliased = h
	return h, err
}

// TestBrokenDeviceFails: a planted mistake and an outdated difference are found.
func TestBrokenDeviceFails(t *testing.T) {
	out, err := devicetest.Conform(devicetest.Subject{
		Name: "broken", New: func(n uint64) (device.Device, error) {
			d, err := simdev.New(simdev.Options{Capacity: n})
			return &forgetful{Device: d}, err
		},
		Differs: map[string]string{"empty": "not so"},
	})
	require.NoError(t, err)
	words := map[string]string{}
	for _, o := range out {
		words[o.Rule] = o.Word
	}
	require.Equal(t, "FAIL", words["create-refused"])
	require.Equal(t, "FAIL", words["chunk-costs"])
	require.Equal(t, "FAIL", words["empty"])
	require.Equal(t, "n/a", words["bytes-stay"])
	require.Equal(t, "pass", words["free-once"])
}
