package properties

import (
	"slices"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// maxReplays bounds the sets that are replayed, maxReplayOps their operations together.
const (
	maxReplays   = 1000
	maxReplayOps = 4_000_000
)

// mostReplays is how many sets are replayed for a refusal at an operation.
func mostReplays(op int) int { return min(maxReplays, max(1, maxReplayOps/(op+1))) }

// confirm replays the trace with the witness freed before the request; with alternatives, every set of that size as far as
// the bounds allow.
func (f *finder) confirm(w *Witness) error {
	try := func(ids []uint64) error {
		served, err := f.replay(ids)
		if err != nil {
			return err
		}
		w.Replays++
		if served {
			w.Served++
		}
		return nil
	}
	ids := make([]uint64, len(w.Blocks))
	for i, b := range w.Blocks {
		ids[i] = b.ID
	}
	if w.Alternatives == 0 {
		return try(ids)
	}
	return combinations(len(f.pins), len(w.Blocks), mostReplays(f.op), func(pick []int) error {
		for i, k := range pick {
			ids[i] = f.pin(f.pins[k]).ID
		}
		return try(ids)
	})
}

// combinations visits the k-subsets of n in order, at most limit of them.
func combinations(n, k, limit int, visit func([]int) error) error {
	pick := make([]int, k)
	for i := range pick {
		pick[i] = i
	}
	for range limit {
		if err := visit(pick); err != nil {
			return err
		}
		i := k - 1
		for i >= 0 && pick[i] == n-k+i {
			i--
		}
		if i < 0 {
			return nil
		}
		pick[i]++
		for j := i + 1; j < k; j++ {
			pick[j] = pick[j-1] + 1
		}
	}
	return nil
}

// replay runs the trace up to the request with some ids freed before it, and tells whether it was served.
func (f *finder) replay(ids []uint64) (bool, error) {
	src := f.program.Trace
	t := &trace.Trace{Name: src.Name, Header: src.Header, Ops: slices.Clone(src.Ops[:f.op])}
	for _, id := range ids {
		t.Ops = append(t.Ops, trace.Op{Kind: trace.Free, ID: id})
	}
	// Other streams may still use them, and what was predicted is their absence.
	t.Ops = append(t.Ops, trace.Op{Kind: trace.Sync, Stream: trace.AllStreams}, src.Ops[f.op])
	dev, err := f.newDevice(f.capacity)
	if err != nil {
		return false, err
	}
	res, err := executor.Execute(executor.Compile(t), f.target, executor.Options{Device: dev})
	if err != nil {
		return false, err
	}
	return len(res.OOMs) == 0 || res.OOMs[len(res.OOMs)-1] != len(t.Ops)-1, nil
}
