package snapshot

import "slices"

// stack is the list of frames as a stack number, 0 if it is none.
func (b *builder) stack(v value) uint32 {
	if v.kind() != kindList || b.lists[v.index()].kind != listStack {
		return 0
	}
	return v.index() + 1
}

// pool is a pair of integers as a number of the list of pools; 0 is the default pool.
func (b *builder) pool(v value) uint32 {
	if v.kind() != kindList {
		return 0
	}
	items := b.items(v.index())
	if len(items) != 2 {
		return 0
	}
	var p Pool
	p.Graph, _ = b.d.number(items[0])
	p.User, _ = b.d.number(items[1])
	if i := slices.Index(b.pools, p); i >= 0 {
		return uint32(i)
	}
	if len(b.pools) >= maxPools {
		return maxPools - 1
	}
	b.pools = append(b.pools, p)
	return uint32(len(b.pools) - 1)
}

// maxPools bounds the search for a pool. Programs with a graph for every batch size have a few hundred.
const maxPools = 4096

// items are the values of a list that is no stack.
func (b *builder) items(i uint32) []value {
	if l := b.lists[i]; l.kind == listValues {
		return b.values[l.start]
	}
	return nil
}

// appendItems appends to a list. A list of frames that comes at once, as they do, is a span of refs.
func (b *builder) appendItems(i uint32, items []value) string {
	if len(items) == 0 {
		return ""
	}
	l := &b.lists[i]
	if l.kind == listEmpty && b.areFrames(items) {
		*l = list{listStack, uint32(len(b.refs)), uint32(len(items))}
		for _, v := range items {
			b.refs = append(b.refs, b.dicts[v.index()].at)
		}
		return ""
	}
	switch l.kind {
	case listEmpty:
		*l = list{kind: listValues, start: uint32(len(b.values))}
		b.values = append(b.values, nil)
	case listStack:
		if b.areFrames(items) && int(l.start+l.n) == len(b.refs) {
			for _, v := range items {
				b.refs = append(b.refs, b.dicts[v.index()].at)
			}
			l.n += uint32(len(items))
			return ""
		}
		return "frames and other values in one list, or two lists of frames that grow in turn"
	}
	b.values[l.start] = append(b.values[l.start], items...)
	return ""
}

func (b *builder) areFrames(items []value) bool {
	for _, v := range items {
		if v.kind() != kindDict || b.dicts[v.index()].kind != dictFrame {
			return false
		}
	}
	return true
}
