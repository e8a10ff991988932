package gen

import (
	"strconv"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// card is something that the player does next: one operation or a short pattern.
type card uint8

const (
	move     card = iota // allocate or free, with the tide
	probe                // a request sized by what is left, freed soon
	record               // one more use of a live block, on another stream
	retire               // a use on another stream, then free while it is outstanding
	replace              // retire, then ask for the same size again: x = f(x) with x used elsewhere
	pingpong             // a block of one stream freed and its size asked for on another
	syncOne              // the next stream of a random order completes
	syncAll              // the device completes
	flush                // empty_cache, in the middle of whatever is going on
	comb                 // a row of equal blocks, every other one freed, then a larger request
	sawtooth             // rising sizes; the long teeth freed, the short ones stay
	carve                // a block exchanged for a slightly smaller one and a pin in its rest
	pinSmall             // a 2 MiB segment filled by three blocks, of which the smallest will stay
	pinLarge             // a 20 MiB segment likewise
	nothing              // a zero-byte allocation, and its free
	conf                 // other settings
	limit                // another memory fraction
	crowd                // others on the device take memory, or give it back
	cardCount
)

// cardWeights are cards of a deck.
type cardWeights [cardCount]uint8

// preset is a Findings workload: how often the player does what, on what device. Percentages are of the budget.
type preset struct {
	cards    cardWeights
	sizes    menuWeights
	capacity [2]uint64 // smallest and largest device, bytes; two large segments a stream at least
	streams  [2]uint64 // fewest and most streams
	crest    [2]uint64 // live bytes at which a wave breaks, percent
	spring   uint64    // waves of eight that break at 90 to 105 percent instead
	trough   [2]uint64 // live bytes at which the next one begins, percent of the crest
	probes   uint64    // most probes at a crest
	ebb      uint64    // most probes at a trough, where only fragmentation refuses
	settled  uint64    // traces of eight that keep the default settings
}

// player is the engine of the Findings workloads. It lets the held bytes rise and fall in waves, and deals cards on the way.
type player struct {
	program
	preset   preset
	capacity uint64
	settings settings
	fraction uint64 // hundredths, 0 if the call is not made
	foreign  uint64
	pinned   uint64 // bytes of segments that only pins hold
	long     float64
	streams  uint64
	cards    deck
	menus    deck
	short    set
	pins     set // long-lived blocks
	rising   bool
	crest    uint64          // bytes
	trough   uint64          // bytes
	probed   int             // when the last probes were, in operations
	unsynced []device.Stream // streams still to be synchronised in this round
}

// probeEvery is how many operations lie between two crests or troughs with probes.
const probeEvery = 150

// newPlayer draws the configuration.
func newPlayer(cfg, ops Source, p Params, s preset) *player {
	g := &player{
		program: newProgram(ops, p.Ops), preset: s,
		capacity: p.Capacity, long: p.Long, streams: uint64(p.Streams), rising: true,
	}
	if g.streams == 0 {
		g.streams = between(cfg, s.streams[0], s.streams[1])
	}
	if g.capacity == 0 {
		g.capacity = logUniform(cfg, max(s.capacity[0], g.streams*2*largeSegment), s.capacity[1]) / smallSegment * smallSegment
	}
	if !chance(cfg, s.settled, 8) {
		g.settings = drawSettings(cfg, g.capacity)
		g.fraction = drawFraction(cfg, g.settings)
	}
	g.cards = newDeck(s.cards[:])
	g.menus = newDeck(s.sizes[:])
	return g
}

// play takes turns until the trace is full. Each must emit an operation.
func (g *player) play(turn func()) *trace.Trace {
	header, fraction := g.settings.String(), g.fraction
	g.draw()
	for !g.full() {
		turn()
	}
	t := g.finish(g.capacity)
	if header != "" {
		t.Set(trace.KeyConf, header)
	}
	if fraction != 0 {
		t.Set(trace.KeyFraction, strconv.FormatFloat(hundredths(fraction), 'g', -1, 64))
	}
	return t
}

// budget is the bytes that this process can get at most, without the segments that pins hold.
func (g *player) budget() uint64 {
	b := g.capacity - g.foreign
	if g.fraction != 0 {
		b = min(b, percent(g.capacity, g.fraction))
	}
	return b - min(g.pinned, b)
}

// draw sets the next wave.
func (g *player) draw() {
	b := g.budget()
	if chance(g.src, g.preset.spring, 8) {
		g.crest = percent(b, between(g.src, 90, 105))
	} else {
		// Each stream keeps about half a segment that others cannot use. On a small device that is much, and without it most
		// refusals would have this one dull reason.
		b -= min(g.streams*largeSegment/2, b/2)
		g.crest = percent(b, between(g.src, g.preset.crest[0], g.preset.crest[1]))
	}
	g.trough = percent(g.crest, between(g.src, g.preset.trough[0], g.preset.trough[1]))
}

// turn deals a card.
func (g *player) turn() {
	before := len(g.ops)
	g.tide()
	g.deal(card(g.cards.next(g.src)))
	if len(g.ops) == before {
		g.allocate() // the card found nothing to work on
	}
}

// turns deals n cards, the draw of the caller.
func (g *player) turns(n uint64) {
	for range n {
		g.turn()
	}
}

// tide turns at the crest and at the trough. Here, where the device is full or where only pins are left, is where refusals are
// worth asking for.
func (g *player) tide() {
	switch {
	case g.rising && g.held() >= g.crest:
		g.probes(g.preset.probes)
		g.rising = false
	case !g.rising && (g.held() <= g.trough || len(g.short.blocks) == 0):
		g.probes(g.preset.ebb)
		if chance(g.src, 1, 2) {
			g.unpin()
		}
		g.rising = true
		g.draw()
	}
}

// unpin frees about half of the pins.
func (g *player) unpin() {
	for range len(g.pins.blocks) / 2 {
		g.free(&g.pins, g.pick(&g.pins))
	}
}

// probes asks up to most times for what should just fit or just not. Waves may be short, so it does so rarely enough to leave
// the refusals few.
func (g *player) probes(most uint64) {
	if most == 0 || len(g.ops) < g.probed+probeEvery {
		return
	}
	g.probed = len(g.ops)
	for range between(g.src, 1, most) {
		g.probe()
	}
}

func (g *player) deal(c card) {
	switch c {
	case move:
		g.move()
	case probe:
		g.probes(1)
	case record:
		g.use()
	case retire:
		g.retire()
	case replace:
		g.replace()
	case pingpong:
		g.pingpong()
	case syncOne:
		g.syncOne()
	case syncAll:
		g.sync(trace.AllStreams)
	case flush:
		g.emit(trace.Op{Kind: trace.EmptyCache})
	case comb:
		g.comb()
	case sawtooth:
		g.sawtooth()
	case carve:
		g.carve()
	case pinSmall:
		g.triple(&g.short, smallTriple)
	case pinLarge:
		g.triple(&g.short, largeTriple)
	case nothing:
		g.alloc(&g.short, 0, g.stream())
		g.freeNewest(&g.short)
	case conf:
		g.configure()
	case limit:
		g.fraction = between(g.src, 60, 100)
		g.emit(trace.Op{Kind: trace.Fraction, Fraction: hundredths(g.fraction)})
		g.draw()
	case crowd:
		g.foreign = 0
		if chance(g.src, 2, 3) {
			g.foreign = percent(g.capacity, between(g.src, 1, 10))
		}
		g.emit(trace.Op{Kind: trace.Foreign, Bytes: g.foreign})
		g.draw()
	}
}

// move goes five steps in eight with the tide.
func (g *player) move() {
	if g.rising != chance(g.src, 3, 8) {
		g.allocate()
	} else {
		g.release()
	}
}

// allocate takes a size from the menu. One that would go over the crest makes the wave break instead: what is refused is
// then left to the probes, and to what an allocator cannot place below the crest.
func (g *player) allocate() {
	bytes := menu(g.menus.next(g.src)).size(g.src, &g.settings, g.capacity)
	if g.held()+bytes > g.crest && len(g.short.blocks) > 0 {
		if g.rising {
			g.probes(g.preset.probes)
			g.rising = false
		}
		g.release()
		return
	}
	into := &g.short
	if float64(g.pins.bytes+bytes) <= g.long*float64(g.live+bytes) && chance(g.src, 1, 2) {
		into = &g.pins
	}
	g.alloc(into, bytes, g.stream())
}

// release frees a short-lived block: a young one, an old one or any.
func (g *player) release() {
	if len(g.short.blocks) == 0 {
		return
	}
	switch g.src.Uint64n(3) {
	case 0:
		g.free(&g.short, g.younger(&g.short))
	case 1:
		g.free(&g.short, g.older(&g.short))
	default:
		g.free(&g.short, g.pick(&g.short))
	}
}

// probe asks for a size measured against what is left by requested bytes, and frees it at once, so that a refusal does not
// leave the model far from the truth.
func (g *player) probe() {
	budget, stream := g.budget(), g.stream()
	left := granule * uint64(1)
	if budget > g.live {
		left = budget - g.live
	}
	bytes := left
	switch g.src.Uint64n(8) {
	case 0, 1: // a little less than what is left: only rounding is in the way
		bytes = left - min(g.src.Uint64n(64*kib), left-1)
	case 2: // a little more: nothing could serve it
		bytes = left + 1 + g.src.Uint64n(max(budget/16, smallSegment))
	case 3: // the whole segments in it
		bytes = left / largeSegment * largeSegment
	case 4: // a small block
		bytes = logUniform(g.src, granule, smallMost)
	default: // a good part of it: no hole may be as large
		bytes = percent(left, between(g.src, 30, 98))
	}
	g.alloc(&g.short, max(bytes, 1), stream)
	g.freeNewest(&g.short)
}

// configure changes the settings in mid-run, often back to none.
func (g *player) configure() {
	g.settings = settings{}
	if chance(g.src, 3, 4) {
		g.settings = drawSettings(g.src, g.capacity)
	}
	text := g.settings.String()
	if text == "" {
		text = "roundup_power2_divisions:1" // all defaults, in the shortest string that says so
	}
	g.emit(trace.Op{Kind: trace.Conf, Conf: text})
}

// stream is a random stream.
func (g *player) stream() device.Stream {
	if g.streams <= 1 {
		return 0
	}
	return device.Stream(g.src.Uint64n(g.streams))
}

// otherStream is a random stream that is not s, if there is one.
func (g *player) otherStream(s device.Stream) device.Stream {
	if g.streams <= 1 {
		return s
	}
	n := device.Stream(g.src.Uint64n(g.streams - 1))
	if n >= s {
		n++
	}
	return n
}
