// Command dynosweep simulates LLM serving deployments without a GPU and sweeps
// over them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/dynosweep/dynosweep/internal/safetext"
)

// gcPercent trades a little time for memory: runs allocate next to nothing once
// their inputs are loaded, so that a tighter heap costs about one percent.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	useHugePages()
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	context.AfterFunc(ctx, stop) // a second signal ends the program where it is
	err := run(ctx, os.Stdout, os.Stderr, os.Args)
	stop()
	if err != nil {
		fmt.Fprintln(safetext.NewWriter(os.Stderr), err)
	}
	os.Exit(exitCode(err))
}

// endSignals are the signals that end a run in order. A terminal that closes sends SIGHUP,
// unless the program was told to outlive it (nohup).
func endSignals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}
