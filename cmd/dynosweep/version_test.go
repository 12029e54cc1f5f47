package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionNamesReleaseAndRevision(t *testing.T) {
	stamp := func(revision, modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified}}
	}
	const rev = "fda4d6d623edc0de0123456789abcdef01234567"
	for _, c := range []struct {
		build, main string
		settings    []debug.BuildSetting
		line, short string
	}{
		{"nothing stamped", "(devel)", nil, release + " (revision unknown)", release},
		{"a checkout", "v0.0.0-20261201025138-fda4d6d623ed", stamp(rev, "false"), release + " (revision fda4d6d623ed)", release + "+fda4d6d623ed"},
		{"a changed checkout", "v0.0.0-20261201025138-fda4d6d623ed+dirty", stamp(rev, "true"), release + " (revision fda4d6d623ed, dirty)", release + "+fda4d6d623ed.dirty"},
		{"a checkout behind a tag", "v0.2.1-0.20261201025138-fda4d6d623ed", stamp(rev, "false"), release + " (revision fda4d6d623ed)", release + "+fda4d6d623ed"},
		{"a tagged checkout", "v0.2.0", stamp(rev, "false"), "0.2.0 (revision fda4d6d623ed)", "0.2.0+fda4d6d623ed"},
		{"a fetched release", "v0.2.0", nil, "0.2.0 (revision unknown)", "0.2.0"},
		{"a fetched revision", "v0.0.0-20261201025138-fda4d6d623ed", nil, release + " (revision fda4d6d623ed)", release + "+fda4d6d623ed"},
		{"an old toolchain", "(devel)", stamp(rev, "true"), release + " (revision fda4d6d623ed, dirty)", release + "+fda4d6d623ed.dirty"},
	} {
		s := sourceOf(&debug.BuildInfo{Main: debug.Module{Version: c.main}, Settings: c.settings})
		if s.line() != c.line || s.String() != c.short {
			t.Errorf("%s: got %q, %q, want %q, %q", c.build, s.line(), s.String(), c.line, c.short)
		}
	}
}
