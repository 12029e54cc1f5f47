package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sweep"
	"github.com/dynosweep/dynosweep/sweep/fleet"
	"github.com/dynosweep/dynosweep/sweep/fleet/embed"
)

func joinCommand() *cli.Command {
	return &cli.Command{
		Name:      "join",
		Usage:     "compute points of a sweep that another process or machine runs",
		ArgsUsage: "FILE",
		Description: `Computes points for the sweep whose join file is given, until it is told to end.
A sweep with --on embed writes that file.

   dynosweep sweep configs/agg-workers.yaml --on embed
   dynosweep join dynosweep-output/agg-workers/fleet.tmp/join --exit-when-idle 10m`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "slots", Usage: "points at a time", Value: runtime.GOMAXPROCS(0)},
			&cli.StringFlag{Name: "cache", Usage: "`DIR` of input files (default: in the user's cache folder)"},
			&cli.DurationFlag{Name: "exit-when-idle", Usage: "exit 0 after so long without work; 0 never"},
		},
		OnUsageError: usageError,
		Action:       runJoin,
	}
}

func runJoin(ctx context.Context, c *cli.Command) error {
	out := newConsole(c)
	if c.NArg() != 1 {
		return badInput(fmt.Errorf("join takes one join file, got %d arguments", c.NArg()))
	}
	if n := c.Int("slots"); n < 1 {
		return badInput(fmt.Errorf("--slots: must be at least 1, got %d", n))
	}
	if d := c.Duration("exit-when-idle"); d < 0 {
		return badInput(fmt.Errorf("--exit-when-idle: must not be negative, got %s", d))
	}
	name := c.Args().First()
	if strings.Contains(name, "://") {
		return badInput(fmt.Errorf("join: %s is an address; join takes the join file that sweep --on embed writes into DIR/fleet.tmp", name))
	}
	link, err := fleet.ReadLink(name)
	if err != nil {
		return badInput(err)
	}
	cache := c.String("cache")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return badInput(fmt.Errorf("give --cache: %w", err))
		}
		cache = filepath.Join(dir, "dynosweep", "fleet")
	}
	err = fleet.Join(ctx, link, fleet.RunnerOptions{Version: version(), Slots: c.Int("slots"), Cache: cache,
		ExitWhenIdle: c.Duration("exit-when-idle"), Notice: out.notice})
	if errors.Is(err, fleet.ErrInput) {
		return badInput(err)
	}
	return err
}

// embedAddress is the address after --on embed://, a free port of loopback for embed.
func embedAddress(on string) (string, error) {
	if on == "embed" {
		return "127.0.0.1:0", nil
	}
	if at, ok := strings.CutPrefix(on, "embed://"); ok && strings.Contains(at, ":") {
		return at, nil
	}
	return "", fmt.Errorf("--on: must be embed or embed://HOST:PORT, got %q", on)
}

// fleetFolder holds the join file of an unfinished sweep in its results directory.
const fleetFolder = "fleet.tmp"

// checkFleet refuses what does not go with --on, and --ack-wait without it.
func (j *sweepJob) checkFleet() error {
	if !j.c.IsSet("on") {
		if j.c.IsSet("ack-wait") {
			return errors.New("--ack-wait has no effect without --on")
		}
		return nil
	}
	for name, why := range map[string]string{"jobs": "--jobs belongs to a local sweep: give join --slots", "point": "--point runs in this process: leave --on out",
		"dry-run": "--dry-run runs nothing: leave --on out", "status": "--status reads the results directory: leave --on out"} {
		if j.c.IsSet(name) {
			return errors.New(why)
		}
	}
	if d := j.c.Duration("ack-wait"); d < 2*time.Second || d > 10*time.Minute {
		return fmt.Errorf("--ack-wait: must be from 2s to 10m, got %s", d)
	}
	_, err := embedAddress(j.c.String("on"))
	return err
}

// embedded is a fleet whose server runs in this process while there is work.
type embedded struct {
	listen, folder string
	submitter      fleet.Submitter
}

var _ sweep.Fleet = (*embedded)(nil)

// Run implements sweep.Fleet.
func (e *embedded) Run(ctx context.Context, w *sweep.Work) error {
	s, err := embed.Start(e.listen, e.folder)
	if err != nil {
		return err
	}
	e.submitter.Link = s.Link
	e.submitter.Notice("fleet: %d points wait for runners: dynosweep join %s", len(w.Todo), filepath.Join(e.folder, "join"))
	err = e.submitter.Run(ctx, w)
	return errors.Join(err, s.Close(err == nil))
}

// fleet is where the points of the sweep run; nil for this process.
func (j *sweepJob) fleet() sweep.Fleet {
	if !j.c.IsSet("on") {
		return nil
	}
	at, _ := embedAddress(j.c.String("on")) // checked before
	return &embedded{at, filepath.Join(j.dir, fleetFolder),
		fleet.Submitter{Version: version(), AckWait: j.c.Duration("ack-wait"), Notice: j.notice}}
}
