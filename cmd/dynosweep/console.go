package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"github.com/dynosweep/dynosweep/internal/safetext"
)

// globalFlags are understood by every verb.
func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress; notices of what a configuration leaves without effect stay"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "say more on standard error: defaults taken, every point that ends"},
		&cli.StringFlag{Name: "color", Usage: "auto, always or never; NO_COLOR in the environment means never", Value: "auto",
			Validator: func(v string) error {
				if v != "auto" && v != "always" && v != "never" {
					return fmt.Errorf("must be auto, always or never, got %q", v)
				}
				return nil
			}},
	}
}

// console is where the program prints: results go to stdout, everything else to stderr.
type console struct {
	stdout, stderr io.Writer
	quiet, verbose bool
	color          bool // of stderr
}

func newConsole(c *cli.Command) console {
	s := console{stdout: c.Root().Writer, stderr: c.Root().ErrWriter, quiet: c.Bool("quiet"), verbose: c.Bool("verbose")}
	switch c.String("color") {
	case "always":
		s.color = true
	case "auto":
		_, no := os.LookupEnv("NO_COLOR")
		s.color = !no && isTerminal(s.stderr)
	}
	return s
}

func isTerminal(w io.Writer) bool {
	f, ok := safetext.Unwrap(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Colours of standard error, as ANSI codes.
const (
	red    = "31"
	yellow = "33"
	faint  = "2"
)

func (s console) say(code, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if s.color {
		fmt.Fprintln(safetext.Unwrap(s.stderr), "\x1b["+code+"m"+safetext.Text(text)+"\x1b[0m")
		return
	}
	fmt.Fprintln(s.stderr, text)
}

// notice tells of something that runs all the same.
func (s console) notice(format string, args ...any) {
	s.say(yellow, "notice: "+format, args...)
}

// detail is for --verbose alone.
func (s console) detail(format string, args ...any) {
	if s.verbose {
		s.say(faint, format, args...)
	}
}

// unknownVerb answers a word that is no verb with the nearest one.
func unknownVerb(_ context.Context, c *cli.Command) error {
	if c.NArg() == 0 {
		return cli.ShowSubcommandHelp(c)
	}
	word := c.Args().First()
	hint := ""
	if near := cli.SuggestCommand(c.Commands, word); plausible(word, near) {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return badInput(fmt.Errorf("%s has no verb %q%s See %s --help", c.FullName(), word, orStop(hint), c.FullName()))
}

// plausible reports that near may be what was meant by word: the library always
// suggests something, and a short form such as -o is no correction.
func plausible(word, near string) bool {
	return len(near) > 1 && (word[0] == near[0] || strings.Contains(near, word) || strings.Contains(word, near))
}

func orStop(hint string) string {
	if hint == "" {
		return "."
	}
	return hint
}

// badValue is the library's message for a value that does not parse, with or
// without the words of package strconv.
var badValue = regexp.MustCompile(`^invalid value "(.*)" for (?:flag|argument) -*(\S+): (?:strconv\.\w+: parsing ".*": )?(.*)$`)

var unknownFlag = regexp.MustCompile(`^flag provided but not defined: -+(\S+)$`)

// usageError turns a flag that does not parse into bad input, with the nearest flag
// where none is known by that name.
func usageError(_ context.Context, c *cli.Command, err error, _ bool) error {
	if m := badValue.FindStringSubmatch(err.Error()); m != nil {
		return badInput(fmt.Errorf("--%s: invalid value %q: %s", m[2], m[1], m[3]))
	}
	m := unknownFlag.FindStringSubmatch(err.Error())
	if m == nil {
		return badInput(fmt.Errorf("%s: %w", c.FullName(), err))
	}
	hint := "."
	if m[1] == "version" {
		return badInput(fmt.Errorf("%s has no flag --version: the version is printed by %s version", c.FullName(), c.Root().Name))
	}
	if near := strings.TrimLeft(cli.SuggestFlag(c.Flags, m[1], false), "-"); plausible(m[1], near) {
		hint = fmt.Sprintf("; did you mean --%s?", near)
	}
	return badInput(fmt.Errorf("%s has no flag --%s%s See %s --help", c.FullName(), m[1], hint, c.FullName()))
}
