package tier

// Figures is what went on in one tier, over all of its pools.
type Figures struct {
	Capacity, Used, Resident, Peak int // blocks
	In, Out                        Moved
	Evictions, Refused             int64
	Pools                          int
}

// Moved is the transfers of one direction; Ms sums their ends less their submissions.
type Moved struct {
	Submitted, Completed int64
	Bytes, Ms            float64
}

// ThirdFigures is what lookups asked of the tier behind the host.
type ThirdFigures struct {
	Figures
	Probes, Hits, Pending, Crossed int64
}

func (f *Figures) add(s *Store) {
	f.Pools++
	f.Capacity += s.capacity
	f.Used += s.used
	f.Resident += s.resident
	f.Peak += s.peak
	f.Evictions += s.evictions
}

func (m *Moved) add(t *transfers) {
	m.Submitted += t.submitted
	m.Completed += t.completed
	m.Bytes += t.bytes
	m.Ms += t.ms
}

// Host returns the figures of the host memory.
func (m *Memory) Host() (f Figures) {
	for _, h := range m.hosts {
		f.add(&h.store)
		f.In.add(&h.writes)
		f.Out.add(&h.reads)
		f.Refused += h.refused
	}
	return f
}

// Third returns the figures of the tier behind the host.
func (m *Memory) Third() (f ThirdFigures) {
	for _, t := range m.thirds {
		f.add(&t.store)
		f.In.add(&t.writes)
		f.Out.add(&t.reads)
		f.Probes += t.probes
		f.Hits += t.hits
		f.Pending += t.pending
		f.Crossed += t.crossed
		f.Refused += t.refused
	}
	return f
}

// BlockBytes is the size of a block.
func (m *Memory) BlockBytes() float64 { return m.cfg.BlockBytes }
