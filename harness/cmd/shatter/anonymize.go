package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/corpus/snapshot"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
)

func anonymizeCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "anonymize FILE --out FILE",
		Short: "strip a snapshot or trace for sharing",
		Long: `Anonymize writes a memory snapshot without stacks, annotations, metadata and times, or a trace without comments, name and all
header lines but capacity, conf and fraction. Sizes, addresses, streams, settings and the order of events stay, so that it
replays as before.`,
		Example: `  shatter anonymize --out share.pickle snapshot.pickle`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if out == "" {
				return hinted{fmt.Errorf("where to write is not given"), "give --out FILE"}
			}
			if isSnapshot(args[0]) {
				return anonymizeSnapshot(args[0], out)
			}
			return anonymizeTrace(args[0], out)
		},
	}
	c.Flags().StringVar(&out, "out", "", "the file to write")
	return c
}

func anonymizeSnapshot(path, out string) error {
	s, err := snapshot.ReadFile(path)
	if err != nil {
		return err
	}
	s.Anonymize()
	return writeWhole(out, func(w io.Writer) error { return snapshot.Write(w, s) })
}

func anonymizeTrace(path, out string) error {
	t, err := tracefile.Read(path)
	if err != nil {
		return err
	}
	kept := &trace.Trace{Ops: t.Ops}
	for _, key := range []string{trace.KeyVersion, trace.KeyCapacity, trace.KeyConf, trace.KeyFraction} {
		if v, ok := t.Get(key); ok {
			kept.Set(key, v)
		}
	}
	return trace.WriteFile(out, kept)
}
