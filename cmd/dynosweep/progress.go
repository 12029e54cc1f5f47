package main

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/dynosweep/dynosweep/internal/safetext"
	"github.com/dynosweep/dynosweep/results"
	"github.com/dynosweep/dynosweep/sweep"
)

// progress shows how a sweep gets on: a bar on a terminal, else a plain line now
// and then. Real time is for people alone and reaches no figure.
type progress struct {
	out   console
	now   func() time.Time
	began time.Time
	last  time.Time
	bar   *progressbar.ProgressBar
	tty   bool
}

// linePause is the least time between two plain lines.
const linePause = time.Second

func newProgress(out console, now func() time.Time) *progress {
	return &progress{out: out, now: now, began: now(), tty: isTerminal(out.stderr)}
}

// update is told of every point that ended.
func (p *progress) update(u sweep.Update) {
	switch {
	case u.Status == results.Failed:
		p.line(red, "failed %s: %s", sweep.Key(u.Point), firstLine(u.Reason))
	case p.out.verbose:
		p.line(faint, "%s %s", u.Status, sweep.Key(u.Point))
	}
	if p.out.quiet {
		return
	}
	if p.tty {
		p.draw(u)
		return
	}
	ended := u.Done + u.Failed + u.Skipped
	if p.pause(linePause, ended == u.Total) {
		p.line("", "%d/%d points: %s", ended, u.Total, p.text(u))
	}
}

// pause reports that the last output is at least so long ago, or that this is the
// final one.
func (p *progress) pause(least time.Duration, final bool) bool {
	now := p.now()
	if now.Sub(p.last) < least && !final {
		return false
	}
	p.last = now
	return true
}

// text is the state in words: counts, speed and what is left of this run at that speed.
func (p *progress) text(u sweep.Update) string {
	left := u.Todo - u.Ran
	rate := float64(u.Ran) / max(p.now().Sub(p.began).Seconds(), 1e-9)
	eta := time.Duration(float64(left) / rate * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%d done, %d failed, %d skipped; %.2f points/s, ETA %s", u.Done, u.Failed, u.Skipped, rate, eta)
}

// drawPause is the least time between two states of the bar.
const drawPause = 100 * time.Millisecond

func (p *progress) draw(u sweep.Update) {
	if p.bar == nil {
		p.bar = progressbar.NewOptions(u.Total, progressbar.OptionSetWriter(safetext.Unwrap(p.out.stderr)),
			progressbar.OptionSetPredictTime(false), progressbar.OptionFullWidth())
	}
	ended := u.Done + u.Failed + u.Skipped
	if p.pause(drawPause, ended == u.Total) {
		_ = p.bar.Set(ended) // a terminal that is gone is no reason to stop
		p.bar.Describe(p.text(u))
	}
}

// line prints a line of its own, above the bar if there is one.
func (p *progress) line(code, format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	if code == "" {
		fmt.Fprintf(p.out.stderr, format+"\n", args...)
		return
	}
	p.out.say(code, format, args...)
}

// finish leaves the terminal in order, and the bar where it is.
func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Exit()
		fmt.Fprintln(p.out.stderr)
	}
}

func firstLine(s string) string {
	for i, r := range s {
		if r == '\n' {
			return s[:i]
		}
	}
	return s
}
