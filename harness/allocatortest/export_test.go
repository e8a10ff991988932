package allocatortest

import (
	"fmt"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// FirstReport does what Test does and returns the first report, empty if there is none.
func FirstReport(factory Factory, opts ...Option) (string, error) {
	s := newSuite(factory, opts)
	s.relations = s.related()
	for _, w := range gen.Workloads {
		for i := range s.sequences {
			tr := s.suitable(gen.Generate(w, gen.Seed(s.seed, w.Name, uint64(i)), gen.Params{Ops: s.ops, Capacity: s.capacity}))
			tr.Name = fmt.Sprintf("%s-%d", w.Name, i)
			if text, err := s.reportOf(tr); text != "" || err != nil {
				return text, err
			}
		}
	}
	return "", nil
}

// ReportOf reports what is found in one trace, empty if nothing is.
func ReportOf(factory Factory, tr *trace.Trace) (string, error) {
	return newSuite(factory, nil).reportOf(tr)
}

func (s *suite) reportOf(tr *trace.Trace) (string, error) {
	capacity, _, err := tr.Capacity()
	if err != nil {
		return "", err
	}
	f, err := s.run(tr, capacity)
	if f == nil || err != nil {
		return "", err
	}
	text, _ := s.report(tr, f)
	return text, nil
}

// CorpusReport replays the corpus and returns the name and the report of the first case that fails, empty if none does.
func CorpusReport(factory Factory) (name, report string, err error) {
	s := newSuite(factory, nil)
	cases, err := corpus.Embedded().Cases()
	if err != nil {
		return "", "", err
	}
	for _, c := range cases {
		tr := s.suitable(c.Trace)
		capacity, _, err := tr.Capacity()
		if err != nil {
			return "", "", err
		}
		if f, err := s.run(tr, capacity); f != nil || err != nil {
			return c.Name, f.String(), err
		}
	}
	return "", "", nil
}

// CrowdReport does what Test does with option Goroutines.
func CrowdReport(factory Factory, opts ...Option) error { return newSuite(factory, opts).crowd() }

// Unchecked is what Test says that it does not check.
var Unchecked = unchecked
