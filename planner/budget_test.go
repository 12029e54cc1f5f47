package planner

import "testing"

// Vectors of spec planner 13.11.

func TestClampPair(t *testing.T) {
	for _, c := range []struct {
		n, cost pair
		b       band
		want    pair
	}{
		{pair{6, 6}, pair{1, 1}, band{-1, 8}, pair{4, 4}},
		{pair{3, 5}, pair{2, 1}, band{-1, 8}, pair{2, 4}},
		{pair{4, 1}, pair{2, 4}, band{-1, 10}, pair{3, 1}},
		{pair{5, 5}, pair{4, 4}, band{-1, 6}, pair{0, 0}},
		{pair{1, 1}, pair{1, 1}, band{4, 4}, pair{2, 2}},
		{pair{0, 0}, pair{1, 2}, band{6, 8}, pair{3, 2}},
		{pair{2, 1}, pair{2, 1}, band{8, 8}, pair{2, 1}},
		{pair{6, 6}, pair{1, 1}, band{-1, -1}, pair{6, 6}},
	} {
		if got := clampPair(c.n, c.cost, c.b, pair{1, 1}); got != c.want {
			t.Errorf("clampPair(%v, cost %v, %v) = %v, want %v", c.n, c.cost, c.b, got, c.want)
		}
	}
}

func TestClampSingle(t *testing.T) {
	for _, c := range []struct {
		n, cost int
		b       band
		want    int
	}{
		{10, 2, band{-1, 8}, 4}, {1, 2, band{6, 8}, 3}, {2, 8, band{-1, 7}, 0}, {5, 0, band{-1, 1}, 5},
	} {
		if got := clampSingle(c.n, c.cost, c.b, 1); got != c.want {
			t.Errorf("clampSingle(%d, cost %d, %v) = %d, want %d", c.n, c.cost, c.b, got, c.want)
		}
	}
}

func TestFitPair(t *testing.T) {
	for _, c := range []struct {
		cur, prop, cost pair
		b               band
		want            pair
	}{
		{pair{2, 2}, pair{1, 3}, pair{1, 1}, band{4, 4}, pair{1, 3}},
		{pair{1, 1}, pair{5, 5}, pair{1, 1}, band{-1, 6}, pair{3, 3}},
		{pair{1, 1}, pair{5, 2}, pair{1, 1}, band{-1, 5}, pair{3, 2}},
		{pair{2, 4}, pair{5, 1}, pair{2, 1}, band{-1, 8}, pair{3, 1}},
		{pair{2, 2}, pair{4, 4}, pair{2, 1}, band{-1, 9}, pair{3, 3}},
	} {
		if got := fitPair(c.cur, c.prop, c.cost, c.b, pair{1, 1}); got != c.want {
			t.Errorf("fitPair(%v -> %v, cost %v, %v) = %v, want %v", c.cur, c.prop, c.cost, c.b, got, c.want)
		}
	}
}

func TestGuards(t *testing.T) {
	one := pair{1, 1}
	for _, c := range []struct {
		cur, prop pair
		b         band
		want      pair
		reason    Reason
	}{
		{pair{2, 2}, pair{1, 1}, band{4, 4}, pair{2, 2}, BudgetHold},
		{pair{4, 4}, pair{5, 4}, band{-1, 8}, pair{4, 4}, BudgetHold},
		{pair{4, 4}, pair{5, 3}, band{-1, 8}, pair{5, 3}, ""},
		{pair{5, 5}, pair{4, 4}, band{-1, 8}, pair{4, 4}, BudgetReconcile},
		{pair{2, 2}, pair{5, 5}, band{-1, 8}, pair{4, 4}, ""},
		{pair{1, 1}, pair{2, 1}, band{6, 8}, pair{3, 3}, BudgetReconcile},
	} {
		if got, reason := guardPair(c.cur, c.prop, one, c.b, one); got != c.want || reason != c.reason {
			t.Errorf("guardPair(%v -> %v, %v) = %v %q, want %v %q", c.cur, c.prop, c.b, got, reason, c.want, c.reason)
		}
	}
	for _, c := range []struct {
		cur, prop int
		b         band
		want      int
		reason    Reason
	}{
		{4, 5, band{-1, 4}, 4, BudgetHold}, {4, 3, band{4, 8}, 4, BudgetHold}, {3, 9, band{-1, 8}, 8, ""},
		{9, 5, band{-1, 8}, 8, BudgetReconcile}, {2, 3, band{4, 8}, 4, BudgetReconcile},
	} {
		if got, reason := guardSingle(c.cur, c.prop, 1, c.b, 1); got != c.want || reason != c.reason {
			t.Errorf("guardSingle(%d -> %d, %v) = %d %q, want %d %q", c.cur, c.prop, c.b, got, reason, c.want, c.reason)
		}
	}
}

// TestFitsAndClampsStayInBand tries every small case: what is neither the input
// nor (0,0) keeps the minimums and the ceiling, and no fit reverses a direction.
func TestFitsAndClampsStayInBand(t *testing.T) {
	least := pair{1, 1}
	for i := range 5 * 5 * 5 * 5 * 3 * 3 {
		digit := func(base int) int { v := i % base; i /= base; return v }
		cur, prop := pair{1 + digit(5), 1 + digit(5)}, pair{1 + digit(5), 1 + digit(5)}
		cost := pair{1 + digit(3), 1 + digit(3)}
		b := band{-1, 9}
		if got := clampPair(prop, cost, b, least); got.gpus(cost) > 9 || got.below(least) {
			t.Fatalf("clampPair(%v, cost %v) = %v", prop, cost, got)
		}
		got := fitPair(cur, prop, cost, b, least)
		if got != cur && got.gpus(cost) > 9 || !within(got.p, cur.p, prop.p) || !within(got.d, cur.d, prop.d) {
			t.Fatalf("fitPair(%v -> %v, cost %v) = %v", cur, prop, cost, got)
		}
	}
}
