package planner

import "math"

// band bounds the GPUs of a deployment. A negative bound is off.
type band struct{ lo, hi int }

func (b band) ceilingOnly() band { return band{-1, b.hi} }

// slack is how far a total may lie under the floor when both bounds are on: the
// largest cost of a replica, since whole replicas cannot hit every total
// (spec planner 7.1).
func (b band) slack(cost int) int {
	if b.lo >= 0 && b.hi >= 0 {
		return cost
	}
	return 0
}

// holds reports whether a total of GPUs is in band.
func (b band) holds(total, slack int) bool {
	return (b.hi < 0 || total <= b.hi) && (b.lo < 0 || total >= b.lo-slack)
}

// pair counts replicas, or the costs or minimums of one, of both roles.
type pair struct{ p, d int }

func (a pair) gpus(cost pair) int { return a.p*cost.p + a.d*cost.d }

func (a pair) max(b pair) pair { return pair{max(a.p, b.p), max(a.d, b.d)} }

func (a pair) below(b pair) bool { return a.p < b.p || a.d < b.d }

func ceilDiv(a, b int) int { return int(math.Ceil(float64(a) / float64(b))) }

func floorDiv(a, b int) int { return int(math.Floor(float64(a) / float64(b))) }

// clampSingle returns the replica count nearest to n that fits the band, for
// replicas of cost GPUs; 0 if even the minimum is too dear (spec planner 7.2).
func clampSingle(n, cost int, b band, minimum int) int {
	if (b.lo < 0 && b.hi < 0) || cost <= 0 || b.holds(n*cost, b.slack(cost)) {
		return n
	}
	if b.hi >= 0 && n*cost > b.hi {
		if b.hi < minimum*cost {
			return 0
		}
		return max(minimum, floorDiv(b.hi, cost))
	}
	return max(minimum, ceilDiv(b.lo, cost))
}

// clampPair scales a pair of replica counts into the band, prefill first; (0,0) if
// even the minimums are too dear (spec planner 7.3).
func clampPair(n, cost pair, b band, minimum pair) pair {
	if (b.lo < 0 && b.hi < 0) || cost.p <= 0 || cost.d <= 0 {
		return n
	}
	total := n.gpus(cost)
	if b.holds(total, b.slack(max(cost.p, cost.d))) {
		return n
	}
	if b.hi >= 0 && total > b.hi {
		if b.hi < minimum.gpus(cost) {
			return pair{}
		}
		scale := float64(b.hi) / float64(total)
		p := min(floorDiv(b.hi-minimum.d*cost.d, cost.p), int(math.Floor(float64(n.p)*scale)))
		p = max(minimum.p, p)
		return pair{p, max(minimum.d, floorDiv(b.hi-p*cost.p, cost.d))}
	}
	p := ceilDiv(b.lo, 2*cost.p)
	if total > 0 {
		p = ceilDiv(n.p*b.lo, total)
	}
	p = max(minimum.p, p)
	d0 := max(minimum.d, ceilDiv(max(0, b.lo-p*cost.p), cost.d))
	raised := pair{p, max(n.d, d0)}
	if b.hi < 0 || raised.gpus(cost) <= b.hi {
		return raised
	}
	if d0 >= n.d {
		return n
	}
	return fitPair(n, pair{p, n.d}, cost, b, minimum)
}

// span is a closed range of replica counts; empty if lo > hi.
type span struct{ lo, hi int }

func between(a, b, minimum int) span { return span{max(min(a, b), minimum), max(a, b)} }

func (s span) nearest(v int) int { return min(max(v, s.lo), s.hi) }

// fitPair returns the largest move from cur toward prop that stays in band and
// reverses no direction. When one role goes up and the other down, both move or
// neither does (spec planner 7.4).
func fitPair(cur, prop, cost pair, b band, minimum pair) pair {
	slack := b.slack(max(cost.p, cost.d))
	if !prop.below(minimum) && b.holds(prop.gpus(cost), slack) {
		return prop
	}
	ps, ds := between(cur.p, prop.p, minimum.p), between(cur.d, prop.d, minimum.d)
	if ps.lo > ps.hi || ds.lo > ds.hi {
		return cur
	}
	best, found := cur, false
	consider := func(c pair) {
		if opposing(cur, prop) && (c.p != cur.p) != (c.d != cur.d) {
			return
		}
		if !found || closer(cur, prop, c, best) {
			best, found = c, true
		}
	}
	if ps.hi-ps.lo <= ds.hi-ds.lo {
		for p := ps.lo; p <= ps.hi; p++ {
			if d := affordable(b, slack, p*cost.p, cost.d, ds); d.lo <= d.hi {
				consider(pair{p, d.nearest(prop.d)})
			}
		}
		return best
	}
	for d := ds.lo; d <= ds.hi; d++ {
		if p := affordable(b, slack, d*cost.d, cost.p, ps); p.lo <= p.hi {
			consider(pair{p.nearest(prop.p), d})
		}
	}
	return best
}

// affordable cuts a role's range to what the band leaves when the other role
// already takes the given GPUs.
func affordable(b band, slack, taken, cost int, s span) span {
	if cost <= 0 {
		return s
	}
	if b.hi >= 0 {
		s.hi = min(s.hi, floorDiv(b.hi-taken, cost))
	}
	if b.lo >= 0 {
		s.lo = max(s.lo, ceilDiv(b.lo-slack-taken, cost))
	}
	return s
}

func opposing(cur, prop pair) bool {
	return (prop.p > cur.p && prop.d < cur.d) || (prop.p < cur.p && prop.d > cur.d)
}

// closer reports whether a is a better compromise than b: nearer to the proposal,
// then truer to its direction, then further on, then smaller.
func closer(cur, prop, a, b pair) bool {
	if x, y := distance(prop, a), distance(prop, b); x != y {
		return x < y
	}
	if x, y := skew(cur, prop, a), skew(cur, prop, b); x != y {
		return x < y
	}
	if x, y := progress(cur, prop, a), progress(cur, prop, b); x != y {
		return x > y
	}
	return a.p < b.p || a.p == b.p && a.d < b.d
}

func abs(v int) int { return max(v, -v) }

func distance(a, b pair) int { return abs(a.p-b.p) + abs(a.d-b.d) }

func skew(cur, prop, c pair) int {
	return abs(abs(c.p-cur.p)*abs(prop.d-cur.d) - abs(c.d-cur.d)*abs(prop.p-cur.p))
}

func progress(cur, prop, c pair) float64 {
	sum := 0.0
	if prop.p != cur.p {
		sum += float64(abs(c.p-cur.p)) / float64(abs(prop.p-cur.p))
	}
	if prop.d != cur.d {
		sum += float64(abs(c.d-cur.d)) / float64(abs(prop.d-cur.d))
	}
	return sum
}

// guardSingle bounds a proposal for one pool: a current size out of band is
// reconciled, a move out of band or against a bound is held (spec planner 7.5).
// The reason is "" when the proposal was followed as far as the band allows.
func guardSingle(cur, prop, cost int, b band, minimum int) (int, Reason) {
	total := cur * cost
	if !b.holds(total, b.slack(cost)) {
		return clampSingle(cur, cost, b, minimum), BudgetReconcile
	}
	if b.lo >= 0 && total <= b.lo && prop < cur {
		return cur, BudgetHold
	}
	if b.hi >= 0 && total >= b.hi && prop > cur {
		return cur, BudgetHold
	}
	n := clampSingle(prop, cost, b, minimum)
	if n < min(cur, prop) || n > max(cur, prop) {
		return cur, BudgetHold
	}
	return n, ""
}

// guardPair is guardSingle for both roles (spec planner 7.6).
func guardPair(cur, prop, cost pair, b band, minimum pair) (pair, Reason) {
	slack := b.slack(max(cost.p, cost.d))
	total := cur.gpus(cost)
	if !b.holds(total, slack) {
		return clampPair(cur, cost, b, minimum), BudgetReconcile
	}
	floored := b.lo >= 0 && total <= b.lo && prop.below(cur)
	capped := b.hi >= 0 && total >= b.hi && cur.below(prop)
	if floored || capped { // only a swap between the roles is left
		if n := fitPair(cur, prop, cost, b, minimum); opposing(cur, prop) && n != cur {
			return n, ""
		}
		return cur, BudgetHold
	}
	n := clampPair(prop, cost, b, minimum)
	if !within(n.p, cur.p, prop.p) || !within(n.d, cur.d, prop.d) || !b.holds(n.gpus(cost), slack) {
		return cur, BudgetHold
	}
	return n, ""
}

func within(v, a, b int) bool { return v >= min(a, b) && v <= max(a, b) }
