package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// version is the program's; a release build sets it.
var version = "0.1.0-dev"

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version, and those of what decides results",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			revision := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = " " + s.Value
					}
				}
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "shatter %s%s\ntrace format %s\ngenerators %d\nallocator rules PyTorch 2.6 (verified by recorded decisions)\n%s %s/%s\n",
				version, revision, trace.Version, gen.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
