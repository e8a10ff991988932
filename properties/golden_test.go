package properties_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/properties"
)

// golden compares text with a file of testdata, or writes it with the flag -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = "testdata/" + name
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err, "go test ./properties -update writes it")
	before, after := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	require.Equal(t, len(before), len(after), name)
	for i := range before {
		require.Equal(t, before[i], after[i], "%s:%d; if it is meant, go test ./properties -update writes it anew", name, i+1)
	}
}

// TestJudgementsStay: every figure of every judgement on generated traces, and the witness of the first fragmentation, is what it
// was: a line a run, with the verdicts counted and a digest of all figures. Verdicts are proved elsewhere; here a change shows that
// nobody meant.
func TestJudgementsStay(t *testing.T) {
	var out strings.Builder
	confs := []string{"", "max_split_size_mb:24", "garbage_collection_threshold:0.6", "roundup_power2_divisions:4"}
	for _, w := range gen.Workloads {
		for i := range uint64(6) {
			tr := gen.Generate(w, gen.Seed(7, w.Name, i), gen.Params{Ops: 260, Capacity: []uint64{22, 60, 104}[i%3] * mib})
			for k, base := range []string{"", "expandable_segments:True", "direct", "best-fit"} {
				conf := confs[(int(i)+k)%len(confs)]
				if k == 1 {
					conf = strings.Trim(base+","+conf, ",")
				}
				var fraction *float64
				if i%2 == 1 {
					f := []float64{0.75, 0, 0.5}[i/2]
					fraction = &f
				}
				spec, err := catalog.FromSettings(conf, fraction)
				if k > 1 { // an allocator that promises nothing
					spec, err = catalog.Parse(base)
				}
				require.NoError(t, err)
				capacity, _, err := tr.Capacity()
				require.NoError(t, err)
				dev, err := simulated(capacity)
				require.NoError(t, err)
				p := executor.Compile(tr)
				on := executor.Target{Name: spec.Name, New: spec.New}
				res, err := executor.Execute(p, on, executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
				require.NoError(t, err)
				for k := range res.Findings {
					require.Equal(t, executor.NoFalseOOM, res.Findings[k].Property, res.Findings[k].String())
				}
				h := fnv.New64a()
				counts := map[executor.Verdict]int{}
				witness := -1
				for j := range res.Judgements {
					v := &res.Judgements[j]
					counts[v.Verdict]++
					asked := *v
					asked.Asked = nil
					fmt.Fprintf(h, "%+v\n", asked)
					if v.Verdict == executor.Fragmentation && witness < 0 {
						witness = v.Op
					}
				}
				if witness >= 0 && k < 2 {
					found, err := properties.FindWitness(p, on, simulated, capacity, witness)
					require.NoError(t, err)
					if found != nil {
						fmt.Fprintf(h, "%+v\n", *found)
					}
				}
				fmt.Fprintf(&out, "%s %d %s:", w.Name, i, spec.Name)
				for _, v := range executor.Verdicts {
					if counts[v] > 0 {
						fmt.Fprintf(&out, " %s %d,", v, counts[v])
					}
				}
				fmt.Fprintf(&out, " digest %016x\n", h.Sum64())
			}
		}
	}
	golden(t, "judgements.golden", out.String())
}

// figures lists all numbers in a value, with their names.
func figures(name string, v reflect.Value, into map[string]reflect.Value, order *[]string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			figures(name+"."+v.Type().Field(i).Name, v.Field(i), into, order)
		}
	case reflect.Uint64, reflect.Int64, reflect.Uint8, reflect.Int32, reflect.Int, reflect.Bool:
		if v.CanSet() {
			into[name] = v
			*order = append(*order, name)
		}
	}
}

// twist changes one number of a value a little, and says which.
func twist(rng *rand.Rand, name string, v reflect.Value, skip ...string) string {
	all := map[string]reflect.Value{}
	var order []string
	figures(name, v, all, &order)
	pick := order[rng.IntN(len(order))]
	for _, s := range skip {
		if strings.HasSuffix(pick, s) {
			return ""
		}
	}
	f := all[pick]
	by := []int64{1, -1, 512, -512, 2 * mib, -2 * mib}[rng.IntN(6)]
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(!f.Bool())
		return pick + " is turned"
	case reflect.Uint64, reflect.Uint8:
		if f.Kind() == reflect.Uint8 || f.Type() == reflect.TypeFor[allocators.State]() {
			f.SetUint((f.Uint() + 1 + uint64(rng.IntN(3))) % 4)
			return fmt.Sprintf("%s becomes %d", pick, f.Uint())
		}
		if by < 0 && f.Uint() < uint64(-by) {
			by = -by
		}
		f.SetUint(f.Uint() + uint64(by))
	default:
		f.SetInt(f.Int() + by)
	}
	return fmt.Sprintf("%s%+d", pick, by)
}

// lieTraces leave live, pending, free and unmapped blocks in both pools, with refusals.
var lieTraces = []string{
	"alloc 0 1MiB\nalloc 1 2MiB\nalloc 2 2MiB\nalloc 3 2MiB stream=1\nalloc 4 3MiB\nrecord 2 stream=7\nfree 2\nfree 3\nempty_cache\n",
	"alloc 0 1MiB\nalloc 1 2MiB\nalloc 2 3MiB\nalloc 3 4MiB\nalloc 4 30MiB\nfree 1\nalloc 5 200MiB\nfree 4\nalloc 6 41MiB\nfree 0\n",
	"alloc 0 50MiB\nalloc 1 700\nfree 0\nalloc 2 10MiB\nrecord 2 stream=1\nfree 2\nalloc 3 70MiB\nsync\nalloc 4 600\nfree 1\nempty_cache\nalloc 5 2MiB\n",
	"alloc 0 22MiB\nalloc 1 22MiB\nalloc 2 22MiB\nfree 1\nalloc 3 9MiB\nalloc 4 1000\nalloc 5 90MiB\nfree 0\nfree 2\nalloc 6 60MiB\nempty_cache\n",
}

// TestLiesStaySeen: an allocator lies about one number, a little, from some call on; what the properties make of it is what it was,
// the lies that nothing is said of included.
func TestLiesStaySeen(t *testing.T) {
	var out strings.Builder
	seen := 0
	for i := range uint64(900) {
		rng := rand.New(rand.NewPCG(11, i))
		text := lieTraces[i%uint64(len(lieTraces))]
		conf := []string{"", expanded, "max_split_size_mb:21"}[i/4%3]
		from := 1 + rng.IntN(5)
		lie := ""
		tell := func(name string, v any, skip ...string) {
			r := rand.New(rand.NewPCG(12, i))
			if said := twist(r, name, reflect.ValueOf(v).Elem(), skip...); lie == "" {
				lie = said
			}
		}
		c := planted{rule: fmt.Sprintf("lie %d", i), trace: text, conf: conf, bare: i%29 == 28, fault: func(l *liar) {
			switch i / 12 % 4 {
			case 0:
				l.tell = func(s *allocators.Stats) {
					if l.calls >= from {
						tell("stats", s)
					}
				}
			case 1:
				l.snapshot = func(s *allocators.Snapshot) {
					if r := rand.New(rand.NewPCG(13, i)); l.calls >= from && len(s.Blocks) > 0 {
						tell("block", &s.Blocks[r.IntN(len(s.Blocks))])
					}
				}
			case 2:
				l.snapshot = func(s *allocators.Snapshot) {
					if r := rand.New(rand.NewPCG(13, i)); l.calls >= from && len(s.Segments) > 0 {
						tell("segment", &s.Segments[r.IntN(len(s.Segments))], "First", "Count", "PageSize")
					}
				}
			case 3:
				l.touched = func(list []allocators.Neighbourhood) []allocators.Neighbourhood {
					if l.calls >= from && len(list) > 0 {
						tell("touched", &list[0])
					}
					return list
				}
			}
		}}
		if i%12 == 11 {
			c.fault = handsOut(func(_ *liar, b *allocators.Block) { tell("handed out", b) })
		}
		res := c.run(t, true)
		said := "nothing"
		if len(res.Findings) > 0 {
			f := &res.Findings[0]
			said = fmt.Sprintf("%s/%s at %d (%s)", f.Property, f.Rule, f.Op, f.At)
			seen++
		}
		h := fnv.New32a()
		for k := range res.Findings {
			fmt.Fprintln(h, res.Findings[k].Detail)
		}
		for k := range res.Judgements {
			fmt.Fprintf(h, "%+v\n", res.Judgements[k])
		}
		fmt.Fprintf(&out, "%d %q from call %d: %s: %s %08x\n", i, conf, from, lie, said, h.Sum32())
	}
	require.Greater(t, seen, 300, "few lies are seen")
	golden(t, "lies.golden", out.String())
}
