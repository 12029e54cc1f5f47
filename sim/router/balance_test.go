package router

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// place places request id on p and returns the route.
func place(t *testing.T, p Placement, id int32) Route {
	t.Helper()
	route, queued, err := p.Place(Request{ID: id, ISL: 10}, 0)
	if queued || err != nil {
		t.Fatalf("request %d: queued %v, %v", id, queued, err)
	}
	return route
}

func newMode(t *testing.T, name string, dpSize int, seed uint64) Placement {
	t.Helper()
	p, err := FindMode(name).New(Options{Config: DefaultConfig(), BlockSize: 64, DPSize: dpSize, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLoadModesKeepTheirLaw plays random placements, ends and scaling against a count
// of the test's own: least_loaded never takes a busier worker, power_of_two never the
// busiest of three or more alone, every mode only active workers, the rank is the
// emptiest of its worker, and nothing is left when all requests ended.
func TestLoadModesKeepTheirLaw(t *testing.T) {
	for _, name := range []string{"random", "least_loaded", "power_of_two"} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 5))
			dpSize := 1 + r.IntN(3)
			p := newMode(t, name, dpSize, seed).(*balancer)
			load, onRank := map[int32]int{}, map[Rank]int{}
			var active []int32
			at := map[int32]Route{}
			next, nextWorker := int32(0), int32(0)
			for range 600 {
				switch op := r.IntN(20); {
				case op == 0 && len(active) < 9 || len(active) == 0:
					p.WorkerReady(nextWorker, 0)
					active = append(active, nextWorker)
					nextWorker++
				case op == 1 && len(active) > 1:
					i := r.IntN(len(active))
					p.WorkerDraining(active[i], 0)
					active = slices.Delete(active, i, i+1)
				case op < 13:
					route := place(t, p, next)
					least, most, busiest := math.MaxInt, -1, 0
					for _, w := range active {
						least = min(least, load[w])
						if load[w] > most {
							most, busiest = load[w], 0
						}
						if load[w] == most {
							busiest++
						}
					}
					switch got := load[route.Worker]; {
					case !slices.Contains(active, route.Worker):
						t.Fatalf("%s, seed %d: worker %d is not active: %v", name, seed, route.Worker, active)
					case name == "least_loaded" && got != least:
						t.Fatalf("%s, seed %d: a worker with %d requests, the least is %d", name, seed, got, least)
					case name == "power_of_two" && len(active) > 1 && got == most && busiest == 1:
						t.Fatalf("%s, seed %d: the busiest worker, with %d requests", name, seed, got)
					}
					for rank := range int32(dpSize) {
						if onRank[Rank{route.Worker, rank}] < onRank[Rank{route.Worker, route.Rank}] {
							t.Fatalf("%s, seed %d: rank %d of worker %d is not the emptiest", name, seed, route.Rank, route.Worker)
						}
					}
					load[route.Worker]++
					onRank[Rank{route.Worker, route.Rank}]++
					at[next] = route
					next++
				default:
					for id := range next {
						if route, ok := at[id]; ok {
							p.Terminal(id, 0, nil)
							load[route.Worker]--
							onRank[Rank{route.Worker, route.Rank}]--
							delete(at, id)
							break
						}
					}
				}
			}
			for id := range at {
				p.Terminal(id, 0, nil)
				p.Terminal(id, 0, nil) // a second signal changes nothing
			}
			if slices.Max(p.inFlight) != 0 || slices.Min(p.inFlight) != 0 || slices.Max(p.onRank) != 0 {
				t.Fatalf("%s, seed %d: %v in flight at the end", name, seed, p.inFlight)
			}
		}
	}
}

// TestRandomIsUniform: each of five workers gets its fifth of 50,000 requests, within
// five standard deviations; so do the idle workers of least_loaded, whose ties are
// drawn, and those of power_of_two.
func TestRandomIsUniform(t *testing.T) {
	const workers, requests = 5, 50_000
	for _, name := range []string{"random", "least_loaded", "power_of_two"} {
		p := newMode(t, name, 1, 9)
		for w := range int32(workers) {
			p.WorkerReady(w, 0)
		}
		var got [workers]int
		for id := range int32(requests) {
			got[place(t, p, id).Worker]++
			p.Terminal(id, 0, nil)
		}
		sigma := math.Sqrt(requests * (1.0 / workers) * (1 - 1.0/workers))
		for w, n := range got {
			if math.Abs(float64(n)-requests/workers) > 5*sigma {
				t.Errorf("%s: worker %d got %d of %d requests: %v", name, w, n, requests, got)
			}
		}
	}
}

// TestModesNeedAnActiveWorker: without one, placing is an error that names the mode.
func TestModesNeedAnActiveWorker(t *testing.T) {
	for _, m := range Modes() {
		p, prompt := newMode(t, m.Name, 1, 0), chain(0, 8, 1)
		if _, queued, err := p.Place(Request{ISL: 10, Prompt: &prompt}, 0); err == nil || queued {
			t.Errorf("%s: queued %v, %v", m.Name, queued, err)
		}
	}
}

// TestModesAreToldApart: names and aliases are unique and lead to their mode.
func TestModesAreToldApart(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range Modes() {
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			if seen[name] || FindMode(name) == nil || FindMode(name).Name != m.Name {
				t.Errorf("%q is of two modes, or leads to none", name)
			}
			seen[name] = true
		}
		if m.Summary == "" || m.Frontend == "" {
			t.Errorf("%s lacks its summary or its name at a frontend", m.Name)
		}
	}
	if FindMode("kv") != nil || DefaultMode().Name != "round_robin" || KVMode().Name != "kv_router" {
		t.Error("the default, the KV router or an unknown name")
	}
}
