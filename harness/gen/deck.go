package gen

// deck deals cards: each number as often as its weight before any round begins anew, so nothing is absent for long.
type deck struct {
	cards []uint8
	dealt int
}

// newDeck has weights[i] cards of number i. Without any card it deals zeros.
func newDeck(weights []uint8) deck {
	var d deck
	for i, n := range weights {
		for range n {
			d.cards = append(d.cards, uint8(i))
		}
	}
	if len(d.cards) == 0 {
		d.cards = []uint8{0}
	}
	return d
}

func (d *deck) next(src Source) uint8 {
	if d.dealt == len(d.cards) {
		d.dealt = 0
	}
	i := d.dealt + int(src.Uint64n(uint64(len(d.cards)-d.dealt)))
	d.cards[d.dealt], d.cards[i] = d.cards[i], d.cards[d.dealt]
	d.dealt++
	return d.cards[d.dealt-1]
}
