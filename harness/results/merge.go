package results

import (
	"fmt"
	"reflect"
)

// Same says whether two journals are parts of one run; the error tells the first thing in which they differ.
func (h *Header) Same(o *Header) error {
	a, b := *h, *o
	a.Shard, a.Shards, b.Shard, b.Shards = 0, 1, 0, 1
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if p, q := x.Field(i).Interface(), y.Field(i).Interface(); !reflect.DeepEqual(p, q) {
			return fmt.Errorf("they are of different runs: %s is %v and %v", x.Type().Field(i).Tag.Get("json"), p, q)
		}
	}
	return nil
}

// Merge joins shards, or parts of a run, to one journal. Each sequence must be in one of them only. names tell the parts apart in
// errors.
func Merge(names []string, parts []*Journal) (*Journal, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("nothing to merge")
	}
	out := &Journal{Header: parts[0].Header}
	out.Shard, out.Shards = 0, 1
	from := map[int]int{}
	for i, p := range parts {
		if err := parts[0].Same(&p.Header); err != nil {
			return nil, fmt.Errorf("%s and %s: %w", names[0], names[i], err)
		}
		for _, s := range p.Sequences {
			if k, twice := from[s.Index]; twice {
				return nil, fmt.Errorf("%s and %s: both have sequence %d", names[k], names[i], s.Index)
			}
			from[s.Index] = i
		}
		out.Sequences = append(out.Sequences, p.Sequences...)
	}
	out.Sort()
	return out, nil
}

// Complete says whether all sequences of the run, or of its shard, are there; a run that a deadline ended never is.
func (j *Journal) Complete() bool {
	n := j.Header.Sequences
	return n > 0 && len(j.Sequences) >= (n-j.Shard+j.Shards-1)/j.Shards
}
