package planner

// Schedule is one tick as it was planned (spec planner 3).
type Schedule struct {
	AtS              float64
	RunLoad          bool // the load cadence is due, also when the loop is disabled
	RunThroughput    bool
	NeedTraffic      bool
	FullTraffic      bool
	TrafficDurationS float64 // the interval that the traffic is asked for
	NeedFPM          bool
}

// timeline accumulates tick times in float seconds and remembers when each loop
// was last due.
type timeline struct {
	cfg            *Config
	lastLoad       float64
	lastThroughput float64
}

const dueTolerance = 1e-9

// at plans the tick at t seconds.
func (l *timeline) at(t float64) Schedule {
	c := l.cfg
	s := Schedule{AtS: t}
	s.RunLoad = t-l.lastLoad >= float64(c.LoadIntervalS)-dueTolerance
	s.RunThroughput = c.ThroughputScaling && t-l.lastThroughput >= float64(c.ThroughputIntervalS)-dueTolerance
	switch {
	case s.RunThroughput:
		s.NeedTraffic, s.FullTraffic = true, true
		s.TrafficDurationS = float64(c.ThroughputIntervalS)
	case c.Target == SLA && !c.ThroughputScaling && c.LoadScaling && s.RunLoad:
		s.NeedTraffic = true
		s.TrafficDurationS = float64(c.LoadIntervalS)
	}
	s.NeedFPM = s.RunLoad && (c.LoadScaling || c.Target == SLA)
	return s
}

// ran moves the marks of the loops that were due.
func (l *timeline) ran(s Schedule) {
	if s.RunLoad {
		l.lastLoad = s.AtS
	}
	if s.RunThroughput {
		l.lastThroughput = s.AtS
	}
}
