package scenario

import (
	"github.com/dynosweep/dynosweep/internal/document"
	"github.com/dynosweep/dynosweep/sim/workload"
)

// Generated returns the synthetic load that the flags describe, without a
// deployment; an error of class ErrInput if they describe none.
func (c *ReplayFlags) Generated() (workload.Synthetic, error) {
	f := &flagFaults{}
	w := c.workload(f)
	if err := f.Err(); err != nil {
		return workload.Synthetic{}, err
	}
	if w.Synthetic == nil {
		return workload.Synthetic{}, &document.Fault{Msg: "synthetic load is wanted, not a trace"}
	}
	return *w.Synthetic, nil
}
