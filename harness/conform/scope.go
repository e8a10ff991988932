package conform

// NotCovered is what agreement with decision logs does not show; pools says that the traces open private pools.
func NotCovered(pools bool) string {
	const rest = "several threads, reuse of addresses by the driver, PyTorch versions other than those of the logs, message text"
	if pools {
		return "order in which private pools that are not in use give their memory back, " + rest
	}
	return "private pools, " + rest
}
