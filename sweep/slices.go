package sweep

import (
	"slices"

	"github.com/dynosweep/dynosweep/sim/timing/aic"
	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// SliceNotices says where the hardware tables that runs are timed with differ from those
// of both other engines by more than engines do (spec calibration 5). What can not be
// asked is left to the run, which says why.
func SliceNotices(runs []scenario.Run) []string {
	var out []string
	asked := map[scenario.AICRequest]bool{}
	ask := func(role *scenario.Role) {
		if role == nil || role.Timing.Kind != scenario.Measured || role.Timing.AIC.Version != "" {
			return // the other engines have no table of that version
		}
		q := role.Timing.AIC
		q.Role = 0
		if asked[q] {
			return
		}
		asked[q] = true
		cfg, err := modelConfig(&q)
		if err != nil {
			return
		}
		probes, err := aic.CheckSlices(q.System, q.SystemsPath, cfg)
		if err != nil {
			return
		}
		for i := range probes {
			n := probes[i].Notice(q.Backend)
			if n = q.Model + " on " + q.System + ": " + n; probes[i].Suspect == q.Backend && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	for i := range runs {
		ask(runs[i].Decode)
		ask(runs[i].Prefill)
	}
	return out
}
