package sweep

import (
	"fmt"

	"dynosweep/sim/timing"
)

// fitProfile reads the other forms of planner_profile_data.
func fitProfile(path string) (*timing.Profile, error) {
	return nil, fmt.Errorf("%s: planner_profile_data takes an .npz file", path)
}
