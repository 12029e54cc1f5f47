package sglang

import (
	"dynosweep/sim/engine"
	"dynosweep/sim/kv"
)

func (c *Core) Run(limit int) engine.Run       { return engine.Run{} }
func (c *Core) Advance(n int, ev *kv.Events)   {}
func (c *Core) Members() []int32               { return nil }
func (c *Core) RunMetrics() engine.ForwardPass { return engine.ForwardPass{} }
