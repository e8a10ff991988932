package conform

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

//go:embed testdata/decisions
var committed embed.FS

// Committed is the folder of decision logs that is part of the program: PyTorch 2.6.0's own decisions (testdata/README.md).
func Committed() fs.FS {
	sub, err := fs.Sub(committed, "testdata/decisions")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// ReadTrace reads the trace of a log from its folder.
func (l *Log) ReadTrace(folder fs.FS) (*trace.Trace, error) {
	f, err := folder.Open(l.TracePath)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return trace.Parse(l.Trace, f)
}

// ReadRows reads the rows of a log from its folder, without its first line and without addresses.
func (l *Log) ReadRows(folder fs.FS) ([]string, error) {
	data, err := fs.ReadFile(folder, l.Path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; fetch it again", l.Path, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; fetch it again", l.Path, err)
	}
	rows := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	columns := strings.Join(executor.Columns, "\t")
	addressed := rows[0] == columns+"\t"+addressColumn
	if !addressed && rows[0] != columns {
		return nil, fmt.Errorf("%s:1: the columns are not those of a decision log: %q, expected %q", l.Path, rows[0], columns)
	}
	rows = rows[1:]
	if addressed {
		for i, r := range rows {
			rows[i] = r[:max(strings.LastIndexByte(r, '\t'), 0)]
		}
	}
	return rows, nil
}

// CompareRows compares the rows of two logs and returns the first difference, nil if there is none.
func CompareRows(log string, want, got []string) *Difference {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return &Difference{log, i + 2, "op", want[i], "(the run has ended)"}
		case i >= len(want):
			return &Difference{log, i + 2, "op", "(the run has ended)", got[i]}
		case want[i] != got[i]:
			if column := firstDifference(want[i], got[i]); column != "" {
				return &Difference{log, i + 2, column, want[i], got[i]}
			}
		}
	}
	return nil
}
