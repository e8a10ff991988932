package conform

// NotCovered is what agreement with decision logs does not show.
const NotCovered = "private pools, several threads, reuse of addresses by the driver, PyTorch versions other than 2.6, message text"
