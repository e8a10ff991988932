package measure

import (
	"github.com/shatter-gpu/shatter/harness/executor"
)

// Scarce are the capacities at which lives are taken, in thousandths of L*.
var Scarce = [...]uint64{1020, 1050, 1100, 1200}

// Life is how far a trace comes on a device with little to spare.
type Life struct {
	PerMille uint64 `json:"per_mille"` // the device, in thousandths of L*
	Served   int    `json:"served"`    // operations before the first refusal, the whole trace if there is none
	OOM      bool   `json:"oom"`
}

// ScarceCapacity is a capacity in thousandths of L*, in whole granules of the device, not rounded up.
func ScarceCapacity(peakLive, perMille uint64) uint64 {
	more := perMille - 1000
	more = peakLive/1000*more + peakLive%1000*more/1000 // in this order nothing overflows
	return max((peakLive+more)/smallestDevice*smallestDevice, smallestDevice)
}

// LifeAt runs up to the first refusal on a device of so many thousandths of L*.
func LifeAt(p *executor.Program, t executor.Target, newDevice NewDevice, perMille uint64) (Life, error) {
	live, _ := PeakLive(p.Trace)
	out := Life{PerMille: perMille}
	dev, err := newDevice(ScarceCapacity(live, perMille))
	if err != nil {
		return out, err
	}
	r, err := executor.Start(p, t, executor.Options{Device: dev})
	if err != nil {
		return out, err
	}
	defer r.Leave()
	for r.More() {
		if err := r.Step(); err != nil {
			return out, err
		}
		if len(r.Result().OOMs) > 0 {
			out.Served, out.OOM = r.Position()-1, true
			return out, nil
		}
	}
	out.Served = r.Position()
	return out, nil
}

// LivesOf takes the lives at all scarce capacities. Where the spectrum is known to pass no run is needed.
func LivesOf(p *executor.Program, t executor.Target, newDevice NewDevice, s *Spectrum) ([]Life, error) {
	var out []Life
	for _, m := range Scarce {
		if s.PassesAt(ScarceCapacity(s.PeakLive, m)) {
			out = append(out, Life{PerMille: m, Served: p.Len()})
			continue
		}
		l, err := LifeAt(p, t, newDevice, m)
		if err != nil {
			return nil, err
		}
		out = append(out, l)
	}
	return out, nil
}
