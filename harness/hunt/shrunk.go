package hunt

import (
	"context"
	"fmt"

	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Shrink makes the best trace of a class small while its fill at refusal gets no higher. It returns nil if there is none.
func (h *Hunter) Shrink(ctx context.Context, class int, budget shrink.Budget) (*trace.Trace, float64, error) {
	k := h.best[class]
	if k == nil {
		return nil, 0, nil
	}
	start := With(k.Trace, class)
	judge := h.cfg.NewJudge()
	limit, err := Fill(start, h.cfg.Target, h.cfg.NewDevice, judge)
	if err != nil {
		return nil, 0, err
	}
	signature := fmt.Sprintf("fill.%s", FigureNames[class])
	res, err := shrink.Minimise(ctx, start, func(t *trace.Trace) shrink.Answer {
		last := len(t.Ops) - 1
		capacity, _, _ := t.Capacity()
		if last < 0 || t.Ops[last].Kind != trace.Alloc || t.Ops[last].Bytes != Classes[class] || t.Ops[last].Stream != 0 || capacity != Capacity {
			return shrink.Answer{}
		}
		fill, err := Fill(t, h.cfg.Target, h.cfg.NewDevice, judge)
		switch {
		case err != nil:
			return shrink.Answer{Kind: shrink.Broken, Err: err}
		case fill <= limit:
			return shrink.Answer{Kind: shrink.Same, Signature: signature, Op: last}
		}
		return shrink.Answer{}
	}, budget)
	if err != nil {
		return nil, 0, err
	}
	fill, err := Fill(res.Trace, h.cfg.Target, h.cfg.NewDevice, judge)
	return res.Trace, fill, err
}

// ShrinkGrowth makes a growing trace small while it keeps at least three quarters of its growth.
func (h *Hunter) ShrinkGrowth(ctx context.Context, k *Kept, budget shrink.Budget) (*Kept, error) {
	conf, _ := k.Trace.Settings()
	start := &trace.Trace{Ops: k.Trace.Ops[:min(cycle, len(k.Trace.Ops))], Header: []trace.Field{{Key: trace.KeyConf, Value: conf}}}
	res, err := shrink.Minimise(ctx, start, func(t *trace.Trace) shrink.Answer {
		now, _ := t.Settings()
		g, err := h.growth(t)
		switch {
		case err != nil:
			return shrink.Answer{Kind: shrink.Broken, Err: err}
		case now == conf && g >= k.Figures[Growth]*3/4:
			return shrink.Answer{Kind: shrink.Same, Signature: "growth", Op: len(t.Ops)}
		}
		return shrink.Answer{}
	}, budget)
	if err != nil {
		return nil, err
	}
	out := &Kept{Trace: res.Trace}
	out.Figures[Growth], err = h.growth(res.Trace)
	return out, err
}
