package results

import (
	"bufio"
	"encoding/csv"
	"io"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
)

// row is what a row of the table is made from.
type row struct {
	h *Header
	s *Sequence
	r *Run
}

// column is a column of the table. A cell is empty where the figure was not taken.
type column struct {
	Name, Says string
	cell       func(row) string
}

// Columns are the columns of sequences.csv, with a sentence each.
var Columns = columns()

func columns() []column {
	out := []column{
		{"index", "of the sequence in the run", func(w row) string { return strconv.Itoa(w.s.Index) }},
		{"workload", "the generator", func(w row) string { return w.s.Workload }},
		{"kind", "distribution: its figures may be counted; findings: they mean nothing", func(w row) string { return w.s.Kind }},
		{"generators", "version of the generators", func(w row) string { return strconv.Itoa(w.h.Generators) }},
		{"parameters", "of the generator, as given; empty: the workload's own", func(w row) string { return trimmed(w.h.Params.String()) }},
		{"campaign_seed", "of the run", func(w row) string { return number(w.h.Seed) }},
		{"seed", "of the sequence, up to 2^64 - 1", func(w row) string { return number(w.s.Seed) }},
		{"trace", "name that makes it again", func(w row) string { return w.s.Trace }},
		{"trace_hash", "pairs are formed by it", func(w row) string { return w.s.Hash }},
		{"operations", "of the trace", func(w row) string { return strconv.Itoa(w.s.Ops) }},
		{"allocator", "as asked for", func(w row) string { return w.r.Target }},
		{"settings", "the allocator with the settings that the trace brought", func(w row) string { return w.r.Allocator }},
		{"device", "as given", func(w row) string { return w.h.Device }},
		{"capacity", "of the device, bytes", func(w row) string { return number(w.s.Capacity) }},
		{"peak_live", "L*: peak of the live bytes asked for", func(w row) string { return number(w.s.PeakLive) }},

		{"executed", "operations executed", func(w row) string { return strconv.Itoa(w.r.Ops) }},
		{"decisions", "digest of all decisions", func(w row) string {
			if len(w.r.Decisions) == 0 {
				return ""
			}
			return w.r.Decisions[len(w.r.Decisions)-1]
		}},
		{"ooms", "requests refused at that capacity", func(w row) string { return strconv.Itoa(w.r.OOMs) }},
		{"first_oom", "operation first refused; empty: none", func(w row) string {
			if w.r.FirstOOM == nil {
				return ""
			}
			return strconv.Itoa(*w.r.FirstOOM)
		}},
	}
	for _, v := range executor.Verdicts {
		name := v.String()
		out = append(out, column{"verdict_" + underscored(name), "refusals with that verdict", func(w row) string {
			for _, c := range w.r.Verdicts {
				if c.Name == name {
					return strconv.Itoa(c.Count)
				}
			}
			return "0"
		}})
	}
	out = append(out,
		column{"findings", "broken properties", func(w row) string { return strconv.Itoa(len(w.r.Findings)) }},
		column{"known", "findings that a known issue explains", func(w row) string { return strconv.Itoa(len(w.r.Known)) }},
		column{"peak_allocated", "bytes", func(w row) string { return number(w.r.PeakAllocated) }},
		column{"peak_reserved", "bytes", func(w row) string { return number(w.r.PeakReserved) }},
		column{"bought", "bytes bought or mapped in all", func(w row) string { return number(w.r.Bought) }},
		column{"allocated", "bytes handed out in all, block sizes", func(w row) string { return number(w.r.Allocated) }},
		column{"retries", "flushes before a refusal or a second try", func(w row) string { return number(w.r.Retries) }},
	)
	for k, name := range callNames {
		out = append(out, column{"calls_" + name, "device calls", func(w row) string { return number(w.r.DeviceCalls[k]) }})
	}
	measured := func(name, says string, cell func(*Measures) string) {
		out = append(out, column{name, says, func(w row) string {
			if w.r.Measures == nil {
				return ""
			}
			return cell(w.r.Measures)
		}})
	}
	// counted and listed are figures that need an allocator's statistics, and a list of its blocks.
	counted := func(name, says string, cell func(*measure.Profile) string) {
		measured(name, says, func(m *Measures) string {
			if m.Profile.Uncounted {
				return ""
			}
			return cell(&m.Profile)
		})
	}
	held := func(name, says string, of func(*measure.Held) uint64) {
		counted("peak_"+name+"_bytes", says+", at t*, refused nothing", func(p *measure.Profile) string { return number(of(&p.Peak)) })
	}
	listed := func(name, says string, of func(*measure.Held) uint64) {
		counted("peak_"+name+"_bytes", says+", at t*, refused nothing", func(p *measure.Profile) string {
			if p.Peak.Unlisted {
				return ""
			}
			return number(of(&p.Peak))
		})
	}
	measured("c_safe", "every capacity from here on passes", func(m *Measures) string { return number(m.Safe) })
	measured("c_min", "the smallest capacity that passes", func(m *Measures) string { return number(m.Min) })
	measured("gaps", "intervals between the two that do not pass", func(m *Measures) string { return strconv.Itoa(m.Gaps) })
	measured("kappa", "c_safe / peak_live", func(m *Measures) string { return real(m.Kappa) })
	measured("lost", "c_safe - peak_live", func(m *Measures) string { return number(m.Lost) })
	measured("peak_operation", "t*: the first operation at which live bytes peak", func(m *Measures) string { return strconv.Itoa(m.Profile.Peak.Op) })
	held("requested", "bytes asked for, of active blocks", func(h *measure.Held) uint64 { return h.Requested })
	held("allocated", "bytes of live blocks", func(h *measure.Held) uint64 { return h.Allocated })
	held("active", "bytes of live and pending blocks", func(h *measure.Held) uint64 { return h.Active })
	held("reserved", "bytes held of the device", func(h *measure.Held) uint64 { return h.Reserved })
	listed("releasable", "bytes that a full release would return", func(h *measure.Held) uint64 { return h.Releasable })
	listed("pinned", "reserved - allocated - releasable", func(h *measure.Held) uint64 { return h.Pinned })
	counted("peak_idle_cache", "(reserved - allocated) / reserved at t*", func(p *measure.Profile) string { return real(p.Peak.IdleCache()) })
	counted("mean_idle_cache", "idle by reserved bytes over all operations", func(p *measure.Profile) string { return real(p.MeanIdleCache) })
	counted("unbounded_peak_reserved", "peak of reserved bytes, refused nothing", func(p *measure.Profile) string { return number(p.PeakReserved) })
	for i, per := range measure.Scarce {
		name := strconv.FormatUint(per, 10)
		measured("served_at_"+name, "operations before the first refusal on a device of so many thousandths of L*",
			func(m *Measures) string { return strconv.Itoa(m.Lives[i].Served) })
		measured("refused_at_"+name, "1 if there is a refusal there", func(m *Measures) string {
			if m.Lives[i].OOM {
				return "1"
			}
			return "0"
		})
	}
	return append(out,
		column{"drift", "the beginning repeated: bounded, grows, undecided", func(w row) string {
			if w.r.Drift == nil {
				return ""
			}
			return w.r.Drift.Kind
		}},
		column{"drift_bytes", "growth a repeat", func(w row) string {
			if w.r.Drift == nil {
				return ""
			}
			return number(w.r.Drift.PerRepeat)
		}})
}

// callNames are the words for device.CallKind.
var callNames = func() []string {
	out := make([]string, device.CallWait+1)
	for k, name := range map[device.CallKind]string{
		device.CallMalloc: "malloc", device.CallMallocFail: "malloc_failed", device.CallFree: "free", device.CallReserve: "reserve",
		device.CallUnreserve: "unreserve", device.CallCreate: "create", device.CallCreateFail: "create_failed",
		device.CallRelease: "release", device.CallMap: "map", device.CallUnmap: "unmap", device.CallWait: "wait",
	} {
		out[k] = name
	}
	return out
}()

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// real has all digits that tell the number apart.
func real(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func trimmed(s string) string {
	if s != "" && s[0] == ' ' {
		return s[1:]
	}
	return s
}

func underscored(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '-' {
			b[i] = '_'
		}
	}
	return string(b)
}

// WriteTable writes sequences.csv (RFC 4180, with line feeds): a header line, then a row a sequence and allocator.
func (j *Journal) WriteTable(w io.Writer) error {
	buf := bufio.NewWriter(w)
	c := csv.NewWriter(buf)
	cells := make([]string, len(Columns))
	for i := range Columns {
		cells[i] = Columns[i].Name
	}
	if err := c.Write(cells); err != nil {
		return err
	}
	for _, s := range j.Sequences {
		for k := range s.Runs {
			at := row{&j.Header, s, &s.Runs[k]}
			for i := range Columns {
				cells[i] = Columns[i].cell(at)
			}
			if err := c.Write(cells); err != nil {
				return err
			}
		}
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	return buf.Flush()
}
