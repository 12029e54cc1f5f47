package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"
)

// release is the version of the source. A module that was fetched by a version of
// its own overrides it.
const release = "0.1.0"

// revisionDigits is how much of a revision is shown, as much as Go's own
// pseudo-versions have.
const revisionDigits = 12

// pseudoVersion is the version that Go makes up for a revision without a tag:
// v0.0.0-20261201025138-fda4d6d623ed, or v1.2.4-0.20261201025138-fda4d6d623ed.
var pseudoVersion = regexp.MustCompile(`[-.][0-9]{14}-([0-9a-f]{12})$`)

// source is what a binary was built from.
type source struct {
	release  string
	revision string // "" where the build does not know it
	dirty    bool   // the working tree had changes that no revision holds
}

// sourceOf reads the source from what the Go command stamped into the binary: the
// version of the module, and the state of the repository where it was built in one.
// go run without -buildvcs=true stamps no revision, nor does -buildvcs=false.
func sourceOf(info *debug.BuildInfo) source {
	s := source{release: release}
	v, dirty := strings.CutSuffix(info.Main.Version, "+dirty")
	s.dirty = dirty
	if m := pseudoVersion.FindStringSubmatch(v); m != nil {
		s.revision = m[1]
	} else if v != "" && v != "(devel)" {
		s.release = strings.TrimPrefix(v, "v")
	}
	for _, set := range info.Settings {
		switch {
		case set.Key == "vcs.revision":
			s.revision = set.Value[:min(revisionDigits, len(set.Value))]
		case set.Key == "vcs.modified" && set.Value == "true":
			s.dirty = true
		}
	}
	return s
}

// String is the release with the revision as build metadata: 0.1.0+fda4d6d623ed.dirty.
func (s source) String() string {
	out := s.release
	if s.revision != "" {
		out += "+" + s.revision
		if s.dirty {
			out += ".dirty"
		}
	}
	return out
}

// line is what the verb version prints of the source.
func (s source) line() string {
	switch {
	case s.revision == "":
		return s.release + " (revision unknown)"
	case s.dirty:
		return s.release + " (revision " + s.revision + ", dirty)"
	}
	return s.release + " (revision " + s.revision + ")"
}

func thisSource() source {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return source{release: release}
	}
	return sourceOf(info)
}

// version is the release with the revision, as results and reports record it.
func version() string { return thisSource().String() }

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:         "version",
		Usage:        "print release, source revision, Go version and platform",
		OnUsageError: usageError,
		Action: func(_ context.Context, c *cli.Command) error {
			if c.NArg() > 0 {
				return badInput(fmt.Errorf("version takes no arguments, got %q", c.Args().First()))
			}
			_, err := fmt.Fprintf(c.Root().Writer, "dynosweep %s %s %s/%s\n", thisSource().line(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
