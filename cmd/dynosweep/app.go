package main

import (
	"context"
	"io"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/internal/safetext"
)

// run is the whole program as a function of its writers and arguments. Terminal escapes
// in names, labels and messages are made visible on both writers.
func run(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	return describeInterrupt(newApp(safetext.NewWriter(stdout), safetext.NewWriter(stderr)).Run(ctx, args))
}

// newApp is the tree of verbs and flags.
func newApp(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "dynosweep",
		Usage: "simulate LLM serving deployments, and sweep over them",
		Description: `Which topology, router, engine and Planner settings should I deploy for this
traffic, and what will it cost?

   dynosweep sweep configs/agg-workers.yaml
   dynosweep report dynosweep-output/agg-workers
   dynosweep recommend -c configs/recommend.yaml
   dynosweep replay --input-tokens 2048 --output-tokens 128 --request-count 100 --replay-concurrency 16`,
		Version:               version(),
		Writer:                stdout,
		ErrWriter:             stderr,
		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden, c.Usage = false, "print the completion script of a shell"
		},
		Suggest:        true,
		HideVersion:    true,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		OnUsageError:   usageError,
		Flags:          globalFlags(),
		Action:         unknownVerb,
		Commands: slices.Concat(
			under("Run", replayCommand(), predictCommand(), sweepCommand(), joinCommand(), recommendCommand()),
			under("See", reportCommand(), compareCommand()),
			under("Trust", calibrateCommand()),
			under("Tools", traceCommand(), perfCommand()),
			[]*cli.Command{versionCommand()},
		),
	}
}

// under puts verbs under a heading of the help; each answers a wrong flag alike.
func under(heading string, verbs ...*cli.Command) []*cli.Command {
	for _, v := range verbs {
		v.Category, v.OnUsageError = heading, usageError
	}
	return verbs
}
