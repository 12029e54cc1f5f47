package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v3"
)

// release is the version of the source; builds from a tagged module override it.
const release = "0.1.0"

// version is the module's version, or the release of the source with the revision
// it was built from, where the build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return release + "+" + s.Value[:12]
		}
	}
	return release
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:         "version",
		Usage:        "print the version",
		OnUsageError: usageError,
		Action: func(_ context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return badInput(fmt.Errorf("version takes no arguments, got %q", c.Args().First()))
			}
			_, err := fmt.Fprintf(c.Root().Writer, "dynosweep %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
