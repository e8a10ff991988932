//go:build race

package executor_test

// racing: the race detector is on, under which less is kept off the heap.
const racing = true
