package aic

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// knownLanes are the kernel names that a walk ranks before the default one.
var knownLanes = []string{"fa3", "fla", "flashinfer", "triton", "trtllm_mha"}

// laneOverrides maps an attention_backend to the lanes it pins (spec aic-perfmodel 5.3).
var laneOverrides = map[string]map[string][]string{
	"sglang": {"fa3": {"fa3"}, "triton": {"triton"}, "trtllm_mha": {"trtllm_mha"}, "flashinfer": {"flashinfer"}, "fla": {"fla"}},
	"vllm": {
		"triton":     {"vllm_triton_attn"},
		"flashinfer": {"vllm_flashinfer_trtllmprefill", "vllm_flashinfer_trtllmdecode", "vllm_flashinfer"},
	},
}

// laneStat counts what a lane has measured.
type laneStat struct {
	name           string
	slices, points int
}

// laneStats counts per lane, in first-seen order; ownOnly counts rows of the
// requested version alone.
func (t *table) laneStats(ownOnly bool) []laneStat {
	var out []laneStat
	for i := range t.slices {
		s := &t.slices[i]
		points := 0
		for _, own := range s.own {
			if own || !ownOnly {
				points++
			}
		}
		if points == 0 {
			continue
		}
		name := t.words[s.key[0]]
		at := slices.IndexFunc(out, func(l laneStat) bool { return l.name == name })
		if at < 0 {
			at = len(out)
			out = append(out, laneStat{name: name})
		}
		out[at].slices++
		out[at].points += points
	}
	return out
}

// walkLanes orders lanes: pinned, the known ones by density, default, the rest by density.
func walkLanes(pinned []string, stats []laneStat) []string {
	byDensity := func(names []string) []string {
		of := func(n string) laneStat {
			for _, l := range stats {
				if l.name == n {
					return l
				}
			}
			return laneStat{name: n}
		}
		slices.SortFunc(names, func(a, b string) int {
			x, y := of(a), of(b)
			return cmp.Or(cmp.Compare(y.slices, x.slices), cmp.Compare(y.points, x.points), cmp.Compare(a, b))
		})
		return names
	}
	order := slices.Clone(pinned)
	add := func(names []string) {
		for _, n := range byDensity(names) {
			if !slices.Contains(order, n) {
				order = append(order, n)
			}
		}
	}
	add(slices.Clone(knownLanes))
	add([]string{"default"})
	var rest []string
	for _, l := range stats {
		rest = append(rest, l.name)
	}
	add(rest)
	return order
}

// laneOrder returns the lanes of an attention table in the order they are asked
// (spec aic-perfmodel 5.3).
func (b *binder) laneOrder(t *table, override string) ([]string, error) {
	all := t.laneStats(false)
	order, err := b.pinnedLanes(all, override)
	if err != nil {
		return nil, err
	}
	mapped := b.mappedLane()
	if len(order) == 0 && mapped == "" {
		return []string{"default"}, nil
	}
	if mapped != "" && mapped != "default" && !slices.Contains(order, mapped) {
		order = append(order, mapped)
	}
	own := t.laneStats(true)
	if len(own) == 0 {
		return walkLanes(order, all), nil
	}
	walkOwn, walkAll := walkLanes(order, own), walkLanes(order, all)
	for _, l := range walkOwn {
		if hasLane(own, l) && !slices.Contains(order, l) {
			order = append(order, l)
		}
	}
	for _, l := range walkAll {
		if !slices.Contains(order, l) {
			order = append(order, l)
		}
	}
	return order, nil
}

// pinnedLanes returns the lanes that an attention backend puts first.
func (b *binder) pinnedLanes(all []laneStat, override string) ([]string, error) {
	if override == "" || override == "default" {
		return nil, nil
	}
	lanes, ok := laneOverrides[b.backend][override]
	if !ok {
		known := append([]string{"default"}, slices.Collect(maps.Keys(laneOverrides[b.backend]))...)
		return nil, classed(ErrConfig, "attention backend %q is unknown to %s; known: %s", override, b.backend, sortedWords(known))
	}
	var pinned []string
	for _, l := range lanes {
		if hasLane(all, l) {
			pinned = append(pinned, l)
		}
	}
	if len(pinned) == 0 {
		var have []string
		for _, s := range all {
			have = append(have, s.name)
		}
		return nil, classed(ErrConfig, "attention backend %q has no rows (measured lanes: %s)", override, sortedWords(have))
	}
	return pinned, nil
}

func hasLane(stats []laneStat, name string) bool {
	return slices.ContainsFunc(stats, func(s laneStat) bool { return s.name == name })
}

// mappedLane is the framework's default kernel for the chip, empty if not known.
func (b *binder) mappedLane() string {
	versions := below(b.lanes, b.backend)
	if versions == nil || versions.Kind != document.Map {
		return ""
	}
	best := ""
	for _, v := range versions.Keys {
		if !slotLess(b.version, v) && (best == "" || slotLess(best, v)) {
			best = v
		}
	}
	lane, _ := scalarText(versions, best, strconv.Itoa(b.sys.sm))
	return lane
}

// laneSlice finds the first lane that holds a slice: in the given order, then in load
// order. rest is the key without the lane; a word missing from the table has id -1.
func (t *table) laneSlice(order []string, key sliceKey) *slice {
	try := func(name string) *slice {
		key[0] = t.word(name)
		return t.find(key)
	}
	for _, name := range order {
		if s := try(name); s != nil {
			return s
		}
	}
	for _, l := range t.laneStats(false) {
		if s := try(l.name); s != nil {
			return s
		}
	}
	return nil
}

// describeSlices lists what a table holds, for messages; a long list is cut.
func (t *table) describeSlices(format func(sliceKey) string) string {
	var have []string
	for i := range t.slices {
		have = append(have, format(t.slices[i].key))
	}
	text := sortedWords(have)
	if len(text) > 400 {
		text = text[:strings.LastIndexByte(text[:400], ',')] + ", ..."
	}
	return text
}
