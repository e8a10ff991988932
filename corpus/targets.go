package corpus

// The native fuzz targets' allocators.
const (
	Classic    = "classic"
	Expandable = "expandable"
)

// FuzzTargets are the fuzz targets by the allocator they try. A folder testdata/fuzz/<target> has their inputs.
var FuzzTargets = map[string]string{Classic: "FuzzClassic", Expandable: "FuzzExpandable"}
