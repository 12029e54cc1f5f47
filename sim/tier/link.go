package tier

import "math"

// link is one direction between two tiers. A job waits its latency, then moves its
// bytes: one after the other on a lane (fifo), else at an equal share of its own
// rank's bandwidth and of what all ranks share (spec kv-offload 5). Rates change only
// when a job starts or ends, so the simulation is exact and event-driven.
type link struct {
	fifo      bool
	latencyMs float64
	rate      float64 // bytes/ms of one rank's link; 0: bytes take no time
	shared    float64 // bytes/ms of all ranks together; +Inf: no cap; 0: no time

	tailMs float64 // fifo: when the lane is free
	atMs   float64 // up to when the bytes of the jobs are accounted
	jobs   []int32 // under way, in order of submission
	own    []int32 // [rank] jobs that move bytes
	moving int     // jobs that move bytes
	busyMs float64 // time with at least one job
	bytes  float64
	ended  int64
}

// seconds of a bandwidth of 0 pass in no time.
func took(bytes, rate float64) float64 {
	if rate == 0 {
		return 0
	}
	return bytes / rate
}

// submit starts job j at nowMs, or later if something it needs is not there before.
func (m *Memory) submit(l *link, j int32, nowMs, notBeforeMs float64) {
	job := &m.jobs[j]
	job.submitMs = nowMs
	job.readyMs = max(nowMs+l.latencyMs, notBeforeMs)
	job.left = job.bytes
	job.running = true
	m.ranks[job.rank].jobs++
	if l.fifo {
		job.endMs = max(l.tailMs, job.readyMs) + took(job.bytes, l.rate)
		l.busyMs += job.endMs - max(l.tailMs, job.readyMs)
		l.tailMs = job.endMs
		l.jobs = append(l.jobs, j)
		m.findNext()
		return
	}
	m.progress(l, nowMs)
	for int(job.rank) >= len(l.own) {
		l.own = append(l.own, 0)
	}
	l.jobs = append(l.jobs, j)
	m.reshare(l)
	m.findNext()
}

// progress accounts the bytes moved up to nowMs.
func (m *Memory) progress(l *link, nowMs float64) {
	dt := nowMs - l.atMs
	if l.moving > 0 {
		l.busyMs += dt
	}
	for _, j := range l.jobs {
		if job := &m.jobs[j]; job.moving {
			job.left = max(0, job.left-float64(job.rate*dt))
		}
	}
	l.atMs = nowMs
}

// reshare starts the jobs whose latency is over and gives every moving job its rate.
func (m *Memory) reshare(l *link) {
	for _, j := range l.jobs {
		if job := &m.jobs[j]; !job.moving && job.readyMs <= l.atMs {
			job.moving = true
			l.own[job.rank]++
			l.moving++
		}
	}
	for _, j := range l.jobs {
		job := &m.jobs[j]
		if !job.moving {
			job.endMs = math.Inf(1)
			continue
		}
		job.rate = math.Inf(1)
		if l.rate > 0 {
			job.rate = l.rate / float64(l.own[job.rank])
		}
		if l.shared > 0 {
			job.rate = min(job.rate, l.shared/float64(l.moving))
		}
		job.endMs = l.atMs
		if job.left > 0 && !math.IsInf(job.rate, 1) {
			job.endMs = l.atMs + job.left/job.rate
		}
	}
}

// nextMs is the next instant at which a job of the link starts to move bytes or ends.
func (m *Memory) nextMs(l *link) float64 {
	next := math.Inf(1)
	for _, j := range l.jobs {
		job := &m.jobs[j]
		if l.fifo {
			return min(next, job.endMs) // in order
		}
		if job.moving {
			next = min(next, job.endMs)
		} else {
			next = min(next, job.readyMs)
		}
	}
	return next
}

// finished takes the first job that has ended by nowMs from the link, -1 if there is
// none.
func (m *Memory) finished(l *link, nowMs float64) int32 {
	if !l.fifo {
		for m.nextMs(l) <= nowMs {
			m.progress(l, m.nextMs(l))
			m.reshare(l)
			if j := m.takeEnded(l, l.atMs); j >= 0 {
				m.reshare(l)
				return j
			}
		}
		return -1
	}
	return m.takeEnded(l, nowMs)
}

// takeEnded removes the first job of the link whose end is due.
func (m *Memory) takeEnded(l *link, nowMs float64) int32 {
	for i, j := range l.jobs {
		job := &m.jobs[j]
		if (l.fifo || job.moving) && job.endMs <= nowMs {
			l.jobs = append(l.jobs[:i], l.jobs[i+1:]...)
			if job.moving {
				l.own[job.rank]--
				l.moving--
			}
			l.bytes += job.bytes
			l.ended++
			return j
		}
	}
	return -1
}

// projectMs is when a job would end if no other job came.
func (m *Memory) projectMs(l *link, j int32) float64 {
	if l.fifo {
		return m.jobs[j].endMs
	}
	keep := append([]job(nil), m.jobs...)
	saved := *l
	l.jobs, l.own = append([]int32(nil), l.jobs...), append([]int32(nil), l.own...)
	endMs := math.Inf(1)
	for done := int32(-1); done != j; {
		next := m.nextMs(l)
		if math.IsInf(next, 1) {
			break
		}
		if done = m.finished(l, next); done == j {
			endMs = l.atMs
		}
	}
	*l = saved
	copy(m.jobs, keep)
	return endMs
}
