//go:build !race

package executor_test

const racing = false
