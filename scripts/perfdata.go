//go:build ignore

// Perfdata converts the wheel of the performance package into the data set that the
// timing model embeds. Run it through scripts/perfdata.
package main

import (
	"fmt"
	"os"

	"github.com/dynosweep/dynosweep/sim/timing/aic"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: perfdata WHEEL DIR")
		os.Exit(2)
	}
	if err := aic.Pack(os.Args[1], os.Args[2], []string{"b200_sxm", "h100_sxm", "h200_sxm"}); err != nil {
		fmt.Fprintln(os.Stderr, "perfdata:", err)
		os.Exit(1)
	}
}
