package campaign

import (
	"fmt"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Repeats is how often a finding on a simulated device is run again; it must come back every time. What shows in a share q of
// the runs gets past with chance q^5: 3 % at a half, 33 % at 80 %, 95 % at 99 %. So five repeats find what depends on map
// iteration, leftover state or time in most runs; what shows nearly always comes back in a later finding, and is found then.
const Repeats = 5

// Deflake runs a finding again and tells whether it is the same each time: the same signature at the same operation in the
// same words. Nothing on a simulated device is left to chance, so any difference is a fault of the harness, not of the
// allocator, and wraps executor.ErrHarness. An allocator in a process of its own may depend on more than the trace, as on what it
// reads of freed memory: there the finding stands, and says so.
func Deflake(f *executor.Finding, t *trace.Trace, again func() (*executor.Result, error)) error {
	for i := range Repeats {
		res, err := again()
		if err != nil {
			return err
		}
		if res.Elsewhere && (len(res.Findings) == 0 || res.Findings[0] != *f) {
			f.Detail += fmt.Sprintf(" (repeat %d of %d ended otherwise)", i+1, Repeats)
			return nil
		}
		switch {
		case len(res.Findings) == 0:
			return flaky(f, t, i, "there was no finding")
		case res.Findings[0] != *f:
			return flaky(f, t, i, "there was another finding: "+res.Findings[0].String())
		}
	}
	return nil
}

// deflake runs the first finding of each signature of a campaign again.
func (c *Config) deflake(f *executor.Finding, t *trace.Trace, again func() (*executor.Result, error)) error {
	if !c.Simulated {
		return nil
	}
	if _, seen := c.confirmed.LoadOrStore(f.Signature(), true); seen {
		return nil
	}
	return Deflake(f, t, again)
}

func flaky(f *executor.Finding, t *trace.Trace, repeat int, instead string) error {
	return fmt.Errorf("%w: %s (trace %s): a finding did not come back in repeat %d of %d: %s; %s",
		executor.ErrHarness, t.Name, t.ID(), repeat+1, Repeats, f, instead)
}
