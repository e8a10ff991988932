package main

import (
	"encoding/json"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// withoutTiming cuts the member timing out of a report, byte for byte: it is the last one of the document.
func withoutTiming(ts *testscript.TestScript, doc string) string {
	if !json.Valid([]byte(doc)) {
		ts.Fatalf("not JSON: %.200s", doc)
	}
	head, _, ok := strings.Cut(doc, "\n  \"timing\": {")
	if !ok {
		ts.Fatalf("the report has no member timing")
	}
	return head
}
