package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v3"
)

// run is the whole program as a function of its writers and arguments.
func run(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	return plainly(newApp(stdout, stderr).Run(ctx, args))
}

// newApp is the tree of verbs and flags.
func newApp(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:                  "dynosweep",
		Usage:                 "simulate LLM serving deployments, and sweep over them",
		Version:               version(),
		Writer:                stdout,
		ErrWriter:             stderr,
		EnableShellCompletion: true,
		Suggest:               true,
		HideVersion:           true,
		ExitErrHandler:        func(context.Context, *cli.Command, error) {},
		OnUsageError:          usageError,
		Flags:                 globalFlags(),
		Action:                unknownVerb,
		Commands: []*cli.Command{
			replayCommand(),
			recommendCommand(),
			predictCommand(),
			sweepCommand(),
			reportCommand(),
			compareCommand(),
			traceCommand(),
			perfCommand(),
			versionCommand(),
		},
	}
}
