package properties

// NotPromised is something that one might expect to hold and that does not, with a trace that shows it (contracts 3.2, 3.3 and the
// entries marked N in section 4). It is not checked.
type NotPromised struct {
	ID, Claim, Source string
	// Alloc, Capacity and Trace show it; Shows says what is to be seen in the replay.
	Alloc, Capacity, Trace, Shows string
}

// NotInvariants are documented so that nobody reports them as faults.
var NotInvariants = []NotPromised{
	{"smaller-fits-too", "If a request would be served, so would a smaller one.", "contracts P9",
		"classic", "12MiB", "alloc 0 5MiB\nalloc 1 10MiB\n", "5 MiB is refused where 10 MiB is served"},
	{"more-memory-helps", "What passes on a device passes on a larger one.", "contracts 3.3", "classic", "54MiB",
		"alloc 0 24MiB\nfree 0\nalloc 1 30MiB\nfree 1\nalloc 2 14MiB\nalloc 3 20MiB\nalloc 4 14MiB\n", "refused at 54 MiB, served at 50 MiB"},
	{"repeats-are-stable", "A repeated identical iteration reserves no more than the first.", "contracts 3.3", "classic", "1GiB",
		"alloc 0 12MiB\nfree 0\nalloc 1 10MiB\nalloc 2 10MiB\nfree 1\nalloc 3 12MiB\nfree 2\nfree 3\n" +
			"alloc 0 12MiB\nfree 0\nalloc 1 10MiB\nalloc 2 10MiB\nfree 1\nalloc 3 12MiB\nfree 2\nfree 3\n", "22 MiB are reserved after the first pass, 34 MiB after the second"},
	{"emptying-is-neutral", "An empty_cache makes no difference to what comes later.", "contracts 3.3", "classic", "30MiB",
		"alloc 0 24MiB\nfree 0\nempty_cache\nalloc 1 14MiB\nalloc 2 5MiB\n", "5 MiB are refused, and served without the empty_cache"},
	{"loops-are-bounded", "A loop of one alloc and one free goes on with the memory of its first turn.", "contracts 3.3; specification 26, G6",
		"classic@max_split_size_mb:21", "100MiB", "alloc 0 21495808\nfree 0\nalloc 0 21495808\nfree 0\nalloc 0 21495808\nfree 0\n",
		"22 MiB are reserved after the first turn, 44 after the second, 66 after the third"},
	{"refused-again", "A refused request is refused again.", "contracts P8, section 3.2; pytorch#189504", "classic", "100MiB",
		"alloc 0 100MiB\nfree 0\nalloc 1 60MiB\nalloc 2 40MiB\nrecord 1 stream=7\nfree 1\nalloc 3 60MiB\nalloc 4 60MiB\n",
		"the first request for 60 MiB is refused, the second served"},
	{"refusal-changes-nothing", "A refused request leaves the state unchanged.", "contracts P7", "classic", "100MiB",
		"alloc 0 40MiB\nfree 0\nalloc 1 101MiB\n", "the cache is flushed: nothing is reserved after the refusal"},
	{"malloc-keeps-reserved", "A served request never lowers the reserved bytes.", "contracts D4", "classic", "50MiB",
		"alloc 0 50MiB\nfree 0\nalloc 1 1000\n", "50 MiB are reserved, then 2 MiB"},
	{"empty-cache-leaves-live-only", "After empty_cache the reserved bytes are those of live requests.", "contracts E2", "classic", "100MiB",
		"alloc 0 1000\nempty_cache\n", "2 MiB stay reserved for 1,000 bytes"},
	{"one-segment-a-pool-and-stream", "There is at most one expandable segment for each pool and stream.", "contracts X2", "expandable", "200MiB",
		"alloc 0 140MiB\nalloc 1 20MiB\nfree 0\nempty_cache\nalloc 2 160MiB\n", "a second segment is made where the room of the first does not do"},
	{"limit-bounds-expandable", "The memory fraction bounds what expandable segments reserve.", "contracts D2, X4", "expandable@x_memory_fraction:0.5", "200MiB",
		"alloc 0 1000\nalloc 1 80MiB\nalloc 2 12MiB\n", "102 MiB are reserved with a limit of 100 MiB"},
	{"doubling-doubles", "With all sizes doubled everything doubles.", "contracts P6", "classic", "1GiB",
		"alloc 0 5MiB\nalloc 1 10MiB\n", "5 MiB buy 20 MiB, as 6 MiB do, and 10 MiB fit beside it"},
}
