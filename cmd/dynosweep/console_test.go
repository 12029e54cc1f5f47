package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// Every verb answers a wrong flag as bad input.
func TestEveryVerbAnswersUnknownFlags(t *testing.T) {
	var walk func(path []string, c *cli.Command)
	walk = func(path []string, c *cli.Command) {
		if c.Name == "help" || c.Name == "completion" { // the library's own
			return
		}
		if _, _, err := try(t, context.Background(), append(path, "--no-such-flag")...); exitCode(err) != exitBadInput || !strings.Contains(err.Error(), "has no flag --no-such-flag") {
			t.Errorf("%v: exit %d, %v", path, exitCode(err), err)
		}
		for _, sub := range c.Commands {
			walk(append(slices.Clone(path), sub.Name), sub)
		}
	}
	walk(nil, newApp(io.Discard, io.Discard))
}

// What a typing error gets back: the nearest word where one is near, and the flag
// that a value was for.
func TestTypingErrorsAreAnswered(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"replya", `dynosweep has no verb "replya"; did you mean "replay"? See dynosweep --help`},
		{"frobnicate", `dynosweep has no verb "frobnicate". See dynosweep --help`},
		{"trace synth --report-json x", "dynosweep trace synth has no flag --report-json. See dynosweep trace synth --help"},
		{"replay --num-worker 3", "dynosweep replay has no flag --num-worker; did you mean --num-workers? See dynosweep replay --help"},
		{"replay --nope", "dynosweep replay has no flag --nope. See dynosweep replay --help"},
		{"replay --input-tokens 99999999999999999999", `--input-tokens: invalid value "99999999999999999999": value out of range`},
		{"--version", "dynosweep has no flag --version: the version is printed by dynosweep version"},
		{"version --json", "dynosweep version has no flag --json. See dynosweep version --help"},
		{"version 2", `version takes no arguments, got "2"`},
		{"sweep --point-timeout 5 x.yaml", `--point-timeout: invalid value "5": time: missing unit in duration "5"`},
	} {
		_, _, err := try(t, context.Background(), strings.Fields(c.args)...)
		if exitCode(err) != exitBadInput || err.Error() != c.want {
			t.Errorf("%s: exit %d, %v\nwant %s", c.args, exitCode(err), err, c.want)
		}
	}
}

func TestInterruptionIsSaidPlainly(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	_, _, err := try(t, ctx, strings.Fields("replay --input-tokens 64 --output-tokens 2 --request-count 4 --replay-concurrency 2 --report-json -")...)
	if exitCode(err) != exitInterrupted || err.Error() != "interrupted" {
		t.Errorf("exit %d: %v", exitCode(err), err)
	}
}

// A report goes where a link points, and the link stays.
func TestReportsFollowLinks(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(real, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Skip(err)
	}
	if _, _, err := try(t, context.Background(), strings.Fields("replay --input-tokens 64 --output-tokens 2 --request-count 4 --replay-concurrency 2 --report-json "+link)...); err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(link)
	if err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
	if st, err := os.Stat(real); err != nil || st.Size() == 0 {
		t.Errorf("nothing behind the link: %v", err)
	}
}
