package planner

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/dynosweep/dynosweep/sim"
)

// FPM is the newest known forward-pass metric of one rank.
type FPM = sim.RankMetrics

// cache is the last forward-pass metric seen of every rank of the active workers,
// sorted by worker id as a string, then by rank (spec planner 4.2).
type cache struct{ rows []FPM }

// merge takes the rows of a tick over and forgets workers that are not active.
// active ascends.
func (c *cache) merge(news []FPM, active []int32) {
	for i := range news {
		at, found := slices.BinarySearchFunc(c.rows, news[i], compareRanks)
		if found {
			c.rows[at] = news[i]
			continue
		}
		c.rows = slices.Insert(c.rows, at, news[i])
	}
	c.rows = slices.DeleteFunc(c.rows, func(f FPM) bool {
		_, ok := slices.BinarySearch(active, f.Worker)
		return !ok
	})
}

func compareRanks(a, b FPM) int {
	if a.Worker != b.Worker {
		return compareDecimal(a.Worker, b.Worker)
	}
	return int(a.Rank) - int(b.Rank)
}

// compareDecimal orders ids as their decimal strings: 10 before 2.
func compareDecimal(a, b int32) int {
	var x, y [11]byte
	return bytes.Compare(strconv.AppendInt(x[:0], int64(a), 10), strconv.AppendInt(y[:0], int64(b), 10))
}

// covers reports whether the rows are those of ready workers with equal ranks.
func covers(rows []FPM, ready int) bool {
	workers, ranks, first := 0, 0, 0
	for i := range rows {
		if i == 0 || rows[i].Worker != rows[i-1].Worker {
			if workers > 1 && ranks != first {
				return false
			}
			if workers == 1 {
				first = ranks
			}
			workers, ranks = workers+1, 0
		}
		ranks++
	}
	return workers == ready && (workers < 2 || ranks == first)
}
