package external

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
)

// TestWithAbilities: what a child can do its allocator can, and nothing else. Settings, limits and pools are served to those alone
// that can do all the rest, as PyTorch does.
func TestWithAbilities(t *testing.T) {
	for i := range 1 << 6 {
		k := abilities{record: i&1 > 0, emptyCache: i&2 > 0, stats: i&4 > 0, fraction: i&8 > 0, conf: i&16 > 0}
		a := &Allocator{can: k}
		if i&32 > 0 {
			a.model = &model{}
		}
		got := a.withAbilities()
		all := k.record && k.emptyCache && k.stats && k.fraction
		for name, c := range map[string]struct{ want, is bool }{
			"record":      {k.record, is[allocators.StreamRecorder](got)},
			"empty_cache": {k.emptyCache, is[allocators.CacheEmptier](got)},
			"stats":       {k.stats, is[allocators.StatsReader](got)},
			"fraction":    {all, is[allocators.FractionSetter](got)},
			"conf":        {all && k.conf, is[allocators.Configurer](got)},
			"promise":     {all && a.model != nil, is[allocators.Promiser](got)},
		} {
			require.Equal(t, c.want, c.is, "%s of %+v", name, k)
		}
	}
}

func is[T any](a allocators.Allocator) bool {
	_, ok := a.(T)
	return ok
}
