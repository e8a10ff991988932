package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/reports"
)

// format is a way to write a results folder.
type format struct {
	name, says string
	write      func(io.Writer, reports.Terminal, *reports.Folder) error
}

// formats are the ways in which `shatter report render` writes a results folder. Each is a function of the folder alone.
var formats = []format{
	{"html", "one page, with memory maps to step through", func(w io.Writer, _ reports.Terminal, f *reports.Folder) error {
		return writeRunPage(context.Background(), w, f)
	}},
	{"text", "for terminals", func(w io.Writer, t reports.Terminal, f *reports.Folder) error { return f.Run.WriteTerminal(w, t) }},
	{"markdown", "for the summary of a CI run", func(w io.Writer, _ reports.Terminal, f *reports.Folder) error { return f.Run.WriteMarkdown(w) }},
	{"junit", "findings as failures, known issues as skipped, a run that was cut short as an error",
		func(w io.Writer, _ reports.Terminal, f *reports.Folder) error { return reports.WriteJUnit(w, f) }},
}

func reportRenderCommand() *cobra.Command {
	var name, out, svg string
	var names []string
	var says []string
	for _, f := range formats {
		names = append(names, f.name)
		says = append(says, f.name+" ("+f.says+")")
	}
	c := &cobra.Command{
		Use:   "render DIR",
		Short: "write the report of a results folder",
		Example: `  shatter report render results
  shatter report render results --format ` + names[len(names)-1] + ` --out report`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if isNight(args[0]) {
				return renderNight(c, args[0], name, out)
			}
			i := slices.IndexFunc(formats, func(f format) bool { return f.name == name })
			if i < 0 {
				return fmt.Errorf("--format %s: must be %s", name, strings.Join(names, ", "))
			}
			folder, err := readFolder(args[0])
			if err != nil && !(name == "junit" && errors.Is(err, reports.ErrUnfinished)) {
				return err
			}
			if svg != "" {
				if err := checkWritable(svg); err != nil {
					return fmt.Errorf("--svg: %w", err)
				}
				if err := writeDiagrams(c.Context(), svg, folder); err != nil {
					return faultError{err}
				}
				if !c.Flags().Changed("format") && out == "" {
					return nil
				}
			}
			var t reports.Terminal
			if out == "" {
				t = terminalOf(c.OutOrStdout())
			}
			return writeOut(c, out, func(w io.Writer) error { return formats[i].write(w, t, folder) })
		},
	}
	c.Flags().StringVar(&name, "format", "text", strings.Join(says, ", "))
	c.Flags().StringVar(&svg, "svg", "", "write the diagrams of the page to this folder, as SVG files; without --format and --out nothing else")
	c.Flags().StringVar(&out, "out", "", "file (default: standard output)")
	return c
}

// writeOut writes to a file, whole or not at all, or to standard output if none is named.
func writeOut(c *cobra.Command, file string, write func(io.Writer) error) error {
	if file == "" {
		w := bufio.NewWriter(c.OutOrStdout())
		if err := write(w); err != nil {
			return faultError{err}
		}
		return w.Flush()
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return fmt.Errorf("--out %s is a folder: name a file", file)
	}
	if err := results.WriteWith(file, write); err != nil {
		return hinted{fmt.Errorf("--out: %w", err), "name a file in a folder that can be written"}
	}
	return nil
}
