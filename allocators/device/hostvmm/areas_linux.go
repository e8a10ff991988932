package hostvmm

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// areas counts the kernel memory areas that all devices of the process may have at most. The limit that it is held against is
// the process's, so the count is too.
var areas atomic.Int64

// What a thing can cost at most. A mapping in the middle of a hole makes two areas more: itself and the hole behind it.
const (
	areasOfArena   = 1
	areasOfMapping = 2
)

// defaultMapCount is the kernel's own default of vm.max_map_count, for systems that do not say.
const defaultMapCount = 65530

// areaLimit leaves a quarter of the process's areas to the Go heap, threads and libraries.
var areaLimit = sync.OnceValue(func() int64 {
	n := int64(defaultMapCount)
	if b, err := os.ReadFile("/proc/sys/vm/max_map_count"); err == nil {
		_, _ = fmt.Sscan(string(b), &n)
	}
	return n * 3 / 4
})

// takeAreas counts n areas more, or refuses.
func (d *Device) takeAreas(n int64) error {
	limit := d.maxAreas
	if limit == 0 {
		limit = areaLimit()
	}
	if now := areas.Add(n); now > limit {
		areas.Add(-n)
		return fmt.Errorf("%d kernel memory areas are in use of %d that host devices may have; raise vm.max_map_count, "+
			"or use a smaller device or larger pages: %w", now-n, limit, device.ErrEnvironment)
	}
	d.host.areas += n
	return nil
}

func (d *Device) giveAreas(n int64) {
	areas.Add(-n)
	d.host.areas -= n
}
