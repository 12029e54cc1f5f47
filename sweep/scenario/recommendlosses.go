package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// losses are the reasons for which alternatives are left out of a search space, each
// with how many it cost: what a search without any candidate names.
type losses struct {
	mode string // the deployment mode that is being looked at
	list []loss // in the order of their first alternative
}

// loss is one reason.
type loss struct {
	mode, why string
	at        *document.Node // what to change
	n         int            // alternatives
	budget    bool           // the GPUs of the search are the reason
}

// add counts an alternative that is left out because of the value at.
func (l *losses) add(at *document.Node, why string) { l.count(loss{mode: l.mode, at: at, why: why}) }

func (l *losses) count(one loss) {
	i := slices.IndexFunc(l.list, func(o loss) bool { return o.mode == one.mode && o.why == one.why })
	if i < 0 {
		i = len(l.list)
		l.list = append(l.list, one)
	}
	l.list[i].n++
}

// shape counts a parallel shape that the hardware tables refuse: the key of the engine
// section that a KeyError names is what to change.
func (l *losses) shape(e document.Mapping, err error) {
	at := e.Node
	var k *KeyError
	if errors.As(err, &k) {
		keys := map[string][]string{"model": {"model"}, "backend_version": {"backend_version", "hardware"}}[k.Key]
		if keys == nil {
			keys = []string{"hardware"}
		}
		for _, key := range keys {
			if v := e.Get(key); v != nil {
				at = v
				break
			}
		}
	}
	l.add(at, err.Error())
}

// budget counts a shape whose GPUs are not within the bounds of the search.
func (l *losses) budget(roles int, g *Optimization) {
	why := fmt.Sprintf("no candidate fits %d to %d GPUs", g.MinGPUs, g.MaxGPUs)
	if roles > g.MaxGPUs {
		why = fmt.Sprintf("%s needs at least %d GPUs, max_candidate_gpus is %d", l.mode, roles, g.MaxGPUs)
	}
	l.count(loss{mode: l.mode, why: why, budget: true})
}

// sorted lists the losses of a mode, of all modes for "": the most frequent reason
// first, the budget last.
func (l *losses) sorted(mode string) []loss {
	var out []loss
	for _, o := range l.list {
		if mode == "" || o.mode == mode {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b loss) int {
		switch {
		case a.budget != b.budget && a.budget:
			return 1
		case a.budget != b.budget:
			return -1
		}
		return b.n - a.n
	})
	return out
}

// reasons tells why a mode, or any mode for "", has no candidate.
func (l *losses) reasons(mode string) string {
	list := l.sorted(mode)
	if len(list) == 0 {
		return "a domain has no values"
	}
	var texts []string
	for _, o := range list {
		text := o.why
		if len(list) > 1 {
			text += fmt.Sprintf(" (%d left out)", o.n)
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

// verdict is the place and the text of the error about a search that has no candidate
// at all: the place is what the first reason says to change.
func (l *losses) verdict(root *document.Node) (*document.Node, string) {
	at := root.Get("optimization")
	if list := l.sorted(""); len(list) > 0 && list[0].at != nil {
		at = list[0].at
	}
	return at, l.reasons("")
}
