package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// checkDecode holds bytes and text to the same meaning.
func checkDecode(b []byte) error {
	tr := Decode(b)
	if err := tr.Validate(); err != nil {
		return fmt.Errorf("decoded trace is illegal: %w", err)
	}
	if len(tr.Ops) > MaxDecodedOps {
		return fmt.Errorf("%d operations", len(tr.Ops))
	}
	canonical := Encode(tr)
	again := Decode(canonical)
	if !bytes.Equal(tr.Format(), again.Format()) {
		return fmt.Errorf("Decode(Encode) changed\n%s\nto\n%s", tr.Format(), again.Format())
	}
	if !bytes.Equal(canonical, Encode(again)) {
		return fmt.Errorf("Encode is not idempotent: % x, then % x", canonical, Encode(again))
	}
	parsed, err := parseText("", tr.Format())
	if err != nil {
		return fmt.Errorf("text of decoded bytes: %w", err)
	}
	if parsed.Hash() != tr.Hash() || !bytes.Equal(Encode(parsed), canonical) {
		return fmt.Errorf("text and bytes disagree on\n%s", tr.Format())
	}
	return nil
}

// checkParse holds what Parse accepts to its canonical text.
func checkParse(data []byte) error {
	tr, err := Parse("fuzz", bytes.NewReader(data))
	if err != nil {
		return nil
	}
	if err := tr.Validate(); err != nil {
		return fmt.Errorf("accepted, but illegal: %w", err)
	}
	text := tr.Format()
	again, err := Parse("fuzz", bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("canonical text is refused: %w\n%s", err, text)
	}
	if !bytes.Equal(text, again.Format()) {
		return fmt.Errorf("canonical text changes from\n%q\nto\n%q", text, again.Format())
	}
	if tr.Hash() != again.Hash() || len(tr.Header) != len(again.Header) {
		return fmt.Errorf("canonical text means something else:\n%q\n%q", data, text)
	}
	for i := range tr.Ops {
		if tr.Ops[i] != again.Ops[i] {
			return fmt.Errorf("operation %d: %v became %v", i, tr.Ops[i], again.Ops[i])
		}
	}
	return nil
}

func FuzzParse(f *testing.F) {
	seeds := 0
	for _, dir := range []string{"format", "errors"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			for _, part := range bytes.Split(data, []byte("=== ")) {
				_, body, _ := bytes.Cut(part, []byte("\n"))
				in, _, _ := bytes.Cut(body, []byte("---\n"))
				f.Add(in)
				seeds++
			}
		}
	}
	if seeds < 80 {
		f.Fatalf("only %d seeds were found in testdata", seeds)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 16<<10 {
			t.Skip("over 16 KiB")
		}
		if err := checkParse(data); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for i := range uint64(20) {
		r := rand.New(rand.NewPCG(1, i))
		f.Add(Encode(wildTrace(r, 60)))
		f.Add(Encode(typicalTrace(r, 60)))
		f.Add(randomBytes(r, 64))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 16<<10 {
			t.Skip("over 16 KiB")
		}
		if err := checkDecode(b); err != nil {
			t.Fatal(err)
		}
	})
}
