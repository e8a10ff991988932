package executor

// Level is a way to count free memory. At each level 'no refusal while the free memory is at least the request' is a demand of
// its own (contracts, section 2).
type Level uint8

// The levels, F0 to F7 of the contracts.
const (
	LevelBytes      Level = iota // F0
	LevelRounded                 // F1
	LevelSettled                 // F2
	LevelStream                  // F3
	LevelContiguous              // F4
	LevelFlushed                 // F5
	LevelPurchase                // F6
	LevelLookup                  // F7
	LevelCount      = iota
)

var levelNames = [LevelCount]string{"bytes", "rounded", "settled", "stream", "contiguous", "flushed", "purchase", "lookup"}

// String returns the word of flags and reports.
func (l Level) String() string { return levelNames[l] }

// Levels are all levels in order.
func Levels() []Level {
	var out []Level
	for l := range Level(LevelCount) {
		out = append(out, l)
	}
	return out
}

// LevelSet is a set of levels.
type LevelSet uint8

// Has tells whether the level is in the set.
func (s LevelSet) Has(l Level) bool { return s>>l&1 != 0 }

// Demands say how a refusal stands to each level.
type Demands struct {
	// Known has the levels that could be computed: an allocator that declares no promise shows neither pools nor pages, one that does not
	// tell the sizes of its blocks only the bytes asked for.
	Known LevelSet
	// Broken has the levels whose demand was broken: the free memory was at least what was needed, and yet it was refused.
	Broken LevelSet
	// Free is the free bytes at each level. For LevelLookup it is the block that lookup accepts, 0 if there is none.
	Free [LevelCount]uint64
	// Fill is the requested bytes of live blocks by the capacity.
	Fill float64
}
