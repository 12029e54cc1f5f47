package aic

// walker reads a decode table at five lengths that move slowly, for one batch. Each
// length keeps its segment of each row, so a run of passes does not search. It gives
// the bits of grid.at, whose arithmetic it repeats.
type walker struct {
	batch float64 // 0 before the first aim
	rows  [2]rowCursor
	n     int     // rows in use; 0 when the grid has to be asked
	w     float64 // weight of the second row
}

// rowCursor is a row of leaves with the current segment of each length.
type rowCursor struct {
	from, to int32
	seg      [5]segment
}

// segment is linear between two keys: low <= c < high.
type segment struct {
	low, high, ms, rise, span float64
}

// aim picks the rows for a batch: one measured row, or the two around it.
func (w *walker) aim(g *grid, heads, batch float64) {
	*w = walker{batch: batch}
	i, exact, _ := bracket(g.k0, heads)
	if !exact {
		return
	}
	from, to := g.off0[i], g.off0[i+1]
	j, exact, inside := bracket(g.k1[from:to], batch)
	j += int(from)
	switch {
	case exact:
		w.n = 1
	case inside:
		w.n = 2
		w.w = (batch - g.k1[j]) / (g.k1[j+1] - g.k1[j])
	default:
		return
	}
	for r := range w.n {
		w.rows[r].from, w.rows[r].to = g.off1[j+r], g.off1[j+r+1]
	}
}

// at returns ms at length c, which is the i-th of the five; false when a row does not
// reach there.
func (w *walker) at(g *grid, i int, c float64) (float64, bool) {
	if w.n == 0 {
		return 0, false
	}
	s := &w.rows[0].seg[i]
	if !(s.low <= c && c < s.high) && !w.rows[0].seek(g, i, c) {
		return 0, false
	}
	a := s.ms + float64(s.rise*((c-s.low)/s.span))
	if w.n == 1 {
		return a, true
	}
	s = &w.rows[1].seg[i]
	if !(s.low <= c && c < s.high) && !w.rows[1].seek(g, i, c) {
		return 0, false
	}
	b := s.ms + float64(s.rise*((c-s.low)/s.span))
	return lerp(a, b, w.w), true
}

// seek finds the segment of a length; false outside the row.
func (r *rowCursor) seek(g *grid, i int, c float64) bool {
	keys := g.k2[r.from:r.to]
	l, exact, inside := bracket(keys, c)
	ms := g.ms[r.from:r.to]
	switch {
	case inside, exact && l+1 < len(keys):
		r.seg[i] = segment{keys[l], keys[l+1], ms[l], ms[l+1] - ms[l], keys[l+1] - keys[l]}
	case exact: // the last key; lengths are whole
		r.seg[i] = segment{c, c + 1, ms[l], 0, 1}
	default:
		return false
	}
	return true
}
