package conform_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
)

// noting remembers where each region lies, by the order in which they are made.
type noting struct {
	device.Device
	bases []device.Addr
}

func (d *noting) Malloc(n uint64) (device.Addr, error) {
	a, err := d.Device.Malloc(n)
	if err == nil {
		d.bases = append(d.bases, a)
	}
	return a, err
}

func (d *noting) Reserve(n uint64) (device.Addr, error) {
	a, err := d.Device.Reserve(n)
	if err == nil {
		d.bases = append(d.bases, a)
	}
	return a, err
}

// writeAddressed writes a folder with the log of a trace on a device with addresses in random order. What a real allocator does not
// tell is `?`.
func writeAddressed(t *testing.T, dir, conf string, seed uint64, withAddress bool) {
	t.Helper()
	w, err := gen.Find("waves")
	require.NoError(t, err)
	tr := gen.Generate(w, seed, gen.Params{Ops: 600, Capacity: 1 << 30})
	spec, err := catalog.FromSettings(conf, nil)
	require.NoError(t, err)
	sim, err := simdev.New(simdev.Options{Capacity: 1 << 30, Order: simdev.Random, Seed: seed})
	require.NoError(t, err)
	dev := &noting{Device: sim}
	header := strings.Join(executor.Columns, "\t")
	if withAddress {
		header += "\taddress"
	}
	log := []byte(header + "\n")
	_, err = executor.Execute(executor.Compile(tr), executor.Target{Name: spec.Name, New: spec.New}, executor.Options{
		Device: dev, OnRow: func(w *executor.Row) {
			f := bytes.Split(w.Append(nil), []byte("\t"))
			f[11], f[15] = []byte("?"), []byte("?")
			if withAddress {
				address := "-"
				if w.HasBlock {
					address = fmt.Sprint(uint64(dev.bases[w.Segment]) + w.Offset)
				}
				f = append(f, []byte(address))
			}
			log = append(append(log, bytes.Join(f, []byte("\t"))...), '\n')
		},
	})
	require.NoError(t, err)
	write := func(name string, data []byte) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		_, err := g.Write(data)
		require.NoError(t, err)
		require.NoError(t, g.Close())
		require.NoError(t, os.WriteFile(path, z.Bytes(), 0o644))
	}
	var text strings.Builder
	for i := range tr.Ops {
		fmt.Fprintln(&text, &tr.Ops[i])
	}
	write("traces/t.trace.gz", []byte(text.String()))
	write("logs/t__torch.tsv.gz", log)
	shown := conf
	if shown == "" {
		shown = "-"
	}
	index := "trace\tconfig_name\tconfig\tcapacity\tfraction\tops\tooms\tfinal_reserved\terrors\talloc_retries\n" +
		fmt.Sprintf("t\ttorch\t%s\t%d\t-\t%d\t0\t0\t0\t0\n", shown, 1<<30, len(tr.Ops))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.tsv"), []byte(index), 0o644))
}

// TestAddressColumn: a log of a device with addresses of its own conforms if it has them, and what is `?` is passed over. Without
// the addresses ties are broken otherwise, at least now and then.
func TestAddressColumn(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:64"} {
		without := 0
		for seed := range uint64(10) {
			dir := t.TempDir()
			writeAddressed(t, dir, conf, seed, true)
			r, err := conform.CompareLogs(dir, nil)
			require.NoError(t, err)
			require.Empty(t, r.Differences, "conf %q, seed %d", conf, seed)
			require.Equal(t, 600, r.Rows)
			writeAddressed(t, dir, conf, seed, false)
			r, err = conform.CompareLogs(dir, nil)
			require.NoError(t, err)
			without += r.Divergent
		}
		if conf != "expandable_segments:True" { // there blocks of one stream lie in one segment
			require.Positive(t, without, "conf %q", conf)
		}
	}
}
