package trace_test

import (
	"fmt"

	"github.com/shatter-gpu/shatter/harness/trace"
)

func ExampleParseString() {
	t, err := trace.ParseString("example.trace", "# capacity: 1GiB\nalloc 0 2MiB stream=1   # weights\nfree 0\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d operations\n%s", len(t.Ops), t.Format())
	_, err = trace.ParseString("example.trace", "alloc 0 2MiB\nfree 1\n")
	fmt.Println(err)
	// Output:
	// 2 operations
	// # capacity: 1073741824
	// alloc 0 2097152 stream=1   # weights
	// free 0
	// example.trace:2:6: free of id 1, which is not live (alloc it first)
}

func ExampleDecode() {
	fmt.Printf("%s", trace.Decode([]byte("any bytes \x80\xd1\x81\x03\xc2\x98\x02\xd1")).Format())
	// Output:
	// alloc 0 512
	// alloc 17 1048576 stream=1
	// alloc 3 0
	// alloc 2 2097152
	// free 17
}
