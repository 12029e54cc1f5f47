package aic

import (
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/dynosweep/dynosweep/internal/document"
)

// slots are the versions of one backend that may be asked for on one system; an
// empty value means the slot is not filled (spec aic-perfmodel 3.2).
type slots struct {
	current, previous, next string
	override                bool // set for this system alone: no derived next
}

func (s slots) String() string {
	parts := []string{"current " + s.current}
	if s.previous != "" {
		parts = append(parts, "previous "+s.previous)
	}
	if s.next != "" {
		parts = append(parts, "next "+s.next)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// parseSlots reads query_versions.yaml for one system and backend.
func parseSlots(doc *document.Node, system, backend string) (slots, bool) {
	read := func(n *document.Node) slots {
		var s slots
		s.current, _ = scalarText(n, "current")
		s.previous, _ = scalarText(n, "previous")
		return s
	}
	if n := below(doc, "overrides", system, backend); n != nil {
		s := read(n)
		s.override = true
		return s, s.current != ""
	}
	if n := below(doc, "defaults", backend); n != nil {
		s := read(n)
		return s, s.current != ""
	}
	return slots{}, false
}

// resolve turns a requested version into a directory name. An empty request means current.
func (s slots) resolve(requested, system, backend string) (string, error) {
	slot := ""
	switch requested {
	case "", "current":
		slot = s.current
	case "previous":
		slot = s.previous
	case "next":
		slot = s.next
	default:
		if requested == s.current || requested == s.previous || requested == s.next {
			return requested, nil
		}
		if os.Getenv("AIC_ALLOW_UNLISTED_VERSIONS") == "1" {
			return requested, nil
		}
	}
	if slot == "" {
		return "", classed(ErrVersion, "backend version %q of %s on %s: not one of the slots %v", requested, backend, system, s)
	}
	return slot, nil
}

var numberRun = regexp.MustCompile(`[0-9]+`)

// slotKey is the order of version slots: major, minor, patch, release after its
// candidates, candidate number, last trailing number (spec aic-perfmodel 3.2).
func slotKey(v string) [6]int {
	var k [6]int
	base, rc := v, -1
	if i := strings.Index(v, "rc"); i >= 0 {
		base = v[:i]
		if m := numberRun.FindString(v[i:]); m != "" {
			rc, _ = strconv.Atoi(m)
		}
	}
	for i, m := range numberRun.FindAllString(base, 3) {
		k[i], _ = strconv.Atoi(m)
	}
	k[3] = 1
	if rc >= 0 {
		k[3], k[4] = 0, rc
	}
	if all := numberRun.FindAllString(v, -1); len(all) > 3 {
		k[5], _ = strconv.Atoi(all[len(all)-1])
	}
	return k
}

func slotLess(a, b string) bool {
	ka, kb := slotKey(a), slotKey(b)
	for i := range ka {
		if ka[i] != kb[i] {
			return ka[i] < kb[i]
		}
	}
	return false
}

var pepVersion = regexp.MustCompile(`^v?([0-9]+(?:\.[0-9]+)*)(?:[-_.]?(a|b|rc)[-_.]?([0-9]+))?(?:[-_.]?post[-_.]?([0-9]+))?(?:[-_.]?dev[-_.]?([0-9]+))?$`)

// pepKey is a version in PEP 440 order; ok is false for a name that is none.
func pepKey(v string) (key [10]int, ok bool) {
	m := pepVersion.FindStringSubmatch(v)
	if m == nil {
		return key, false
	}
	for i, part := range strings.Split(m[1], ".") {
		if i < 6 {
			key[i], _ = strconv.Atoi(part)
		}
	}
	pre, post, dev := m[2] != "", m[4] != "", m[5] != ""
	switch {
	case pre:
		key[6] = map[string]int{"a": 1, "b": 2, "rc": 3}[m[2]]
		key[7], _ = strconv.Atoi(m[3])
	case dev && !post: // 1.0.dev1 < 1.0a1
		key[6] = 0
	default:
		key[6] = 4
	}
	if post {
		key[8], _ = strconv.Atoi(m[4])
		key[8]++
	}
	key[9] = int(^uint(0) >> 1)
	if dev {
		key[9], _ = strconv.Atoi(m[5])
	}
	return key, true
}

func pepLess(a, b [10]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
