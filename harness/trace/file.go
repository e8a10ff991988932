package trace

import (
	"fmt"
	"os"
	"path/filepath"
)

// stdinName is the Name of a trace from standard input.
const stdinName = "stdin"

// ReadFile reads a trace from a file, plain or gzip whatever its name (package tracefile reads zstd too); "-" reads standard input. A trace that is
// wrong gives an *Error.
func ReadFile(path string) (*Trace, error) {
	if path == "-" {
		return Parse(stdinName, os.Stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(path, f)
}

// WriteFile writes the canonical text to a file, compressed if its name ends in .gz. A trace that is not legal is
// refused. The file appears whole or not at all: it is written under a temporary name in the same folder, synced and
// renamed. Its permissions are 0644.
func WriteFile(path string, t *Trace) (err error) {
	if err := t.Validate(); err != nil {
		return err
	}
	data, err := compress(filepath.Ext(path), t.Format())
	if err != nil {
		return fmt.Errorf("%s: compressing failed: %w", path, err)
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes a rename in the folder last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
