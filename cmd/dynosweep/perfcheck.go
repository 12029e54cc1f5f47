package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/dynosweep/dynosweep/sim/timing/aic"
)

func perfCheckCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "compare the tables of all engines, and name suspect slices",
		Description: `Prices three passes of a model with the tables of vLLM, SGLang and TensorRT-LLM. One that
is 1.8 times above the mean of the other two is suspect: its table holds something that a real
engine does not pay for. No price is changed.

   dynosweep perf check --model Qwen/Qwen3-32B-FP8 --system b200_sxm --tp-size 2`,
		Flags:        modelFlags(),
		OnUsageError: usageError,
		Action:       perfCheck,
	}
}

func perfCheck(_ context.Context, c *cli.Command) error {
	for _, flag := range []string{"batch", "backend", "backend-version"} {
		if c.IsSet(flag) {
			return badInput(fmt.Errorf("--%s does not belong to perf check, which asks the current tables of every engine about one model", flag))
		}
	}
	if c.String("model") == "" {
		return badInput(fmt.Errorf("--model is required"))
	}
	cfg, err := perfModelConfig(c)
	if err != nil {
		return badInput(err)
	}
	probes, err := aic.CheckSlices(c.String("system"), c.String("systems-path"), cfg)
	if err != nil {
		return badInput(err)
	}
	out := newConsole(c)
	if c.Bool("json") {
		return printJSON(out.stdout, probes)
	}
	for i := range probes {
		p := &probes[i]
		fmt.Fprintf(out.stdout, "%s of %d x %d\n", p.Phase, p.Batch, p.Length)
		for _, price := range p.Prices {
			if price.Reason != "" {
				fmt.Fprintf(out.stdout, "  %-7s %s\n", price.Backend, price.Reason)
				continue
			}
			fmt.Fprintf(out.stdout, "  %-7s %10.3f ms\n", price.Backend, price.Ms)
		}
		if n := p.Notice(p.Suspect); n != "" {
			out.notice("%s", n)
		}
	}
	return nil
}
