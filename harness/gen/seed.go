package gen

import (
	"crypto/sha256"
	"encoding/binary"
)

// Seed is the seed of one iteration of a campaign. It depends on nothing else, so an iteration replays alone, in any
// worker and in any order; campaigns with neighbouring numbers share no traces.
func Seed(campaign uint64, workload string, index uint64) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, campaign)
	b = binary.LittleEndian.AppendUint64(b, index)
	h := sha256.Sum256(append(b, workload...))
	return binary.LittleEndian.Uint64(h[:])
}
