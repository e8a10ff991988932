package reports

import (
	"fmt"
	"html"
	"io"

	"github.com/shatter-gpu/shatter/allocators"
)

// MemoryMap is a picture of what an allocator holds after an operation: its segments one after the other, in address order,
// as bars of blocks, then what the device has left.
type MemoryMap struct {
	// Title is the allocator, Note what became of the operation.
	Title, Note string
	Snapshot    allocators.Snapshot
	// Capacity and DeviceFree are bytes.
	Capacity, DeviceFree uint64
}

// The picture's measures, in pixels.
const (
	mapWidth  = 940
	mapMargin = 20
	mapRows   = 8
	rowHeight = 20
	rowGap    = 6
	panelHead = 46
	mapHead   = 92
)

// kind of a stretch of memory, by what it means for a request.
type stretch struct {
	class string
	size  uint64
	label string
	edge  bool // a segment begins here
}

// mapStyle gives each kind a colour that is also told apart in grey.
var mapStyle = []struct{ class, fill, says string }{
	{"live", "#2f5d8a", "live"},
	{"pin", "#12304f", "live, pins free memory in its segment or page"},
	{"pinned", "#e8912d", "free but pinned"},
	{"free", "#bcd9a8", "free, a release would return it"},
	{"pending", "#b48cc8", "freed, another stream still uses it"},
	{"device", "#f1f1ee", "free at the device"},
}

// WriteMemoryMaps writes the maps one below the other, as one SVG file, under a heading and a line that says when.
func WriteMemoryMaps(w io.Writer, heading, when string, maps []MemoryMap) error {
	p := &printer{w: w}
	panel := panelHead + mapRows*(rowHeight+rowGap)
	height := mapHead + len(maps)*panel + 16
	p.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui, sans-serif">`,
		mapWidth+2*mapMargin, height, mapWidth+2*mapMargin, height)
	p.line(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	p.line(`<text x="%d" y="28" font-size="17" font-weight="600" fill="#1a1a1a">%s</text>`, mapMargin, html.EscapeString(heading))
	p.line(`<text x="%d" y="46" font-size="12" fill="#444">%s</text>`, mapMargin, html.EscapeString(when))
	x, y := mapMargin, 58
	for i, s := range mapStyle {
		if i == 3 { // two rows of three, so that no system's font runs over the edge
			x, y = mapMargin, y+18
		}
		p.line(`<rect x="%d" y="%d" width="12" height="12" fill="%s" stroke="#777" stroke-width="0.5"/>`, x, y, s.fill)
		p.line(`<text x="%d" y="%d" font-size="11" fill="#444">%s</text>`, x+17, y+10, s.says)
		x += mapWidth / 3
	}
	for i := range maps {
		maps[i].write(p, mapHead+i*panel)
	}
	p.line(`</svg>`)
	return p.err
}

// write draws a panel at y.
func (m *MemoryMap) write(p *printer, y int) {
	p.line(`<text x="%d" y="%d" font-size="14" font-weight="600" fill="#1a1a1a">%s</text>`, mapMargin, y+22, html.EscapeString(m.Title))
	p.line(`<text x="%d" y="%d" font-size="12" fill="#444">%s</text>`, mapMargin, y+38, html.EscapeString(m.Note))
	list := m.stretches()
	var total uint64
	for _, s := range list {
		total += s.size
	}
	if total == 0 {
		return
	}
	perRow := (total + mapRows - 1) / mapRows
	at := uint64(0)
	for _, s := range list {
		for left, edge := s.size, s.edge; left > 0; edge = false {
			row := at / perRow
			part := min(left, perRow-at%perRow)
			x := mapMargin + float64(at%perRow)/float64(perRow)*mapWidth
			width := float64(part) / float64(perRow) * mapWidth
			top := y + panelHead + int(row)*(rowHeight+rowGap)
			if width >= 0.2 { // what is narrower cannot be seen
				p.line(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`,
					x, top, width, rowHeight, fillOf(s.class), html.EscapeString(s.label))
			}
			if edge {
				p.line(`<path d="M%.1f %dv%d" stroke="#000" stroke-width="1"/>`, x, top-2, rowHeight+4)
			}
			at += part
			left -= part
		}
	}
}

func fillOf(class string) string {
	for _, s := range mapStyle {
		if s.class == class {
			return s.fill
		}
	}
	return "#ff00ff"
}

// stretches lists the blocks of all segments without unmapped ones, then the device's free memory.
func (m *MemoryMap) stretches() []stretch {
	var out []stretch
	for i := range m.Snapshot.Segments {
		g := &m.Snapshot.Segments[i]
		blocks := m.Snapshot.BlocksOf(i)
		edge := true
		for k := range blocks {
			b := &blocks[k]
			if b.State == allocators.Unmapped {
				edge = true
				continue
			}
			for _, s := range parts(g, blocks, k) {
				s.edge = edge
				s.label = fmt.Sprintf("%s, %s", s.label, Size(s.size))
				edge = false
				out = append(out, s)
			}
		}
	}
	return append(out, stretch{class: "device", size: m.DeviceFree, label: "free at the device, " + Size(m.DeviceFree), edge: true})
}

// parts divides a block by what it means: of a free block in an expandable segment, whole pages can be returned and the
// rest is pinned.
func parts(g *allocators.SegmentInfo, blocks []allocators.BlockInfo, k int) []stretch {
	b := &blocks[k]
	idle := func(i int) bool {
		return i >= 0 && i < len(blocks) && (blocks[i].State == allocators.Free || blocks[i].State == allocators.Pending)
	}
	switch b.State {
	case allocators.Pending:
		return []stretch{{class: "pending", size: b.Size, label: "pending"}}
	case allocators.Live:
		pins := idle(k-1) || idle(k+1)
		if !g.Expandable {
			for i := range blocks {
				pins = pins || idle(i)
			}
		}
		if pins {
			return []stretch{{class: "pin", size: b.Size, label: "live, pins"}}
		}
		return []stretch{{class: "live", size: b.Size, label: "live"}}
	}
	if !g.Expandable {
		for i := range blocks {
			if blocks[i].State == allocators.Live {
				return []stretch{{class: "pinned", size: b.Size, label: "free, pinned"}}
			}
		}
		return []stretch{{class: "free", size: b.Size, label: "free"}}
	}
	begin := uint64(b.Addr - g.Addr)
	end := begin + b.Size
	first, last := (begin+g.PageSize-1)/g.PageSize*g.PageSize, end/g.PageSize*g.PageSize
	if last <= first {
		return []stretch{{class: "pinned", size: b.Size, label: "free, pinned"}}
	}
	var out []stretch
	for _, s := range []stretch{
		{class: "pinned", size: first - begin, label: "free, pinned"}, {class: "free", size: last - first, label: "free"},
		{class: "pinned", size: end - last, label: "free, pinned"},
	} {
		if s.size > 0 {
			out = append(out, s)
		}
	}
	return out
}
