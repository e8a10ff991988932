package cudadev

import "time"

// Latency is how long a driver call took, call by call, for memory of one size.
type Latency struct {
	Call string
	Size uint64 // bytes
	// Calls are sorted, shortest first.
	Calls []time.Duration
}
