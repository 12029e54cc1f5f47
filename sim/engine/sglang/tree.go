package sglang

import (
	"fmt"

	"github.com/dynosweep/dynosweep/sim/kv"
)

// stretch is a part of an edge whose ids are consecutive: page at+k has id first+k.
type stretch struct {
	first kv.BlockID
	at    int32 // page position from the start of the prompt
}

// node is a node of the radix tree with the edge that leads to it.
type node struct {
	edge       []stretch // ascending; the first is at start, the last ends at end
	start, end int32     // pages of the edge; not empty except at the root
	parent     int32
	children   int32
	lock       int32 // leases on it or below
	leaf       int32 // its place in tree.leaves, -1: no eviction candidate
	tick       int64
}

// key returns the id of page pos, start <= pos < end.
func (n *node) key(pos int32) kv.BlockID {
	i := len(n.edge) - 1
	for n.edge[i].at > pos {
		i--
	}
	s := n.edge[i]
	return s.first + kv.BlockID(pos-s.at)
}

// extend appends the pages [n.end, end) of a prompt to the edge.
func (n *node) extend(p *kv.Prompt, end int32) {
	for pos := n.end; pos < end; {
		id, upTo := p.Block(int(pos)), end
		if pos < p.Shared { // the rest of the prefix-chain node
			upTo = min(end, p.Shared, pos-pos%p.Ratio+p.Ratio)
		}
		if k := len(n.edge); k == 0 || n.edge[k-1].first+kv.BlockID(pos-n.edge[k-1].at) != id {
			n.edge = append(n.edge, stretch{id, pos})
		}
		pos = upTo
	}
	n.end = end
}

// root is the index of the root, which is never locked nor evicted.
const root = 0

// tree is the radix tree over page identities (spec engine-sglang 7). Pages have
// no number here: the tree owns one physical page per position of its edges, and
// only how many there are is visible anywhere.
//
// That is enough for the reconciliation of duplicates (7.4): the private pages of
// a request are never in the tree, so of the pages it inserts, those that were
// there already are its duplicates, and the others become the tree's.
type tree struct {
	nodes  []node
	spare  []int32  // free places in nodes
	index  kv.Table // node of every edge by its first page id, which names its whole prefix
	leaves []int32  // unlocked leaves, a heap by tick
	ticks  int64
	pages  int32 // on all nodes
	locked int32 // on nodes with lock > 0
}

func newTree() tree { return tree{nodes: []node{{leaf: -1}}} }

// evictable is the number of pages on unlocked nodes.
func (t *tree) evictable() int32 { return t.pages - t.locked }

func (t *tree) nextTick() int64 { t.ticks++; return t.ticks }

// find returns how many of the first limit pages of p are in the tree, and the
// deepest node that holds one of them, fully matched or not. It touches nothing.
func (t *tree) find(p *kv.Prompt, limit int32) (pages, deepest int32) {
	for pages < limit {
		child := t.index.Get(uint64(p.Block(int(pages))))
		if child == 0 {
			break
		}
		deepest = child
		n := &t.nodes[child]
		pages = t.matchEdge(n, p, limit)
		if pages < n.end {
			break
		}
	}
	return pages, deepest
}

// matchEdge returns the position up to which p, cut at limit, follows the edge of n.
// They share the first page of the edge. Equal ids mean equal prefixes, so the
// pages that agree are a prefix of the edge.
func (t *tree) matchEdge(n *node, p *kv.Prompt, limit int32) int32 {
	hi := min(n.end, limit) // all of [start, lo) agree, nothing from hi on
	if n.key(hi-1) == p.Block(int(hi-1)) {
		return hi
	}
	lo := n.start + 1
	for hi--; lo < hi; {
		mid := lo + (hi-lo)/2
		if n.key(mid) == p.Block(int(mid)) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// lockMatch locks the longest match among the first limit pages of p, splitting
// an edge that matches partly, and returns its length and its node.
func (t *tree) lockMatch(p *kv.Prompt, limit int32) (pages, at int32) {
	tick := t.nextTick()
	pages, at = t.find(p, limit)
	fresh := at
	if at != root && pages < t.nodes[at].end {
		at = t.split(at, pages)
		fresh = t.nodes[at].parent // the upper part keeps its old tick
	}
	t.lock(at)
	t.touch(fresh, tick)
	return pages, at
}

// touch gives tick to n and its ancestors, none of which is an unlocked leaf.
func (t *tree) touch(n int32, tick int64) {
	for ; n != root; n = t.nodes[n].parent {
		t.nodes[n].tick = tick
	}
}

// split cuts the edge of n at page pos, start < pos < end, and returns the new
// upper node. References to n stay valid.
func (t *tree) split(n, pos int32) int32 {
	u := t.make(t.nodes[n].parent, t.nodes[n].start)
	up, low := &t.nodes[u], &t.nodes[n]
	up.end, up.lock, up.tick, up.children = pos, low.lock, low.tick, 1
	k := len(low.edge)
	for low.edge[k-1].at >= pos {
		k--
	}
	up.edge = append(up.edge, low.edge[:k]...)
	id := low.key(pos)
	if k == len(low.edge) || low.edge[k].at > pos {
		k--
		low.edge[k] = stretch{id, pos}
	}
	low.edge = low.edge[:copy(low.edge, low.edge[k:])]
	low.start, low.parent = pos, u
	t.index.Put(uint64(up.edge[0].first), u)
	t.index.Put(uint64(id), n)
	return u
}

// make returns an empty node whose edge begins at page start. It is not indexed.
func (t *tree) make(parent, start int32) int32 {
	var n int32
	if k := len(t.spare); k > 0 {
		n = t.spare[k-1]
		t.spare = t.spare[:k-1]
	} else {
		n = int32(len(t.nodes))
		t.nodes = append(t.nodes, node{})
	}
	t.nodes[n] = node{edge: t.nodes[n].edge[:0], start: start, end: start, parent: parent, leaf: -1}
	return n
}

// lock adds a lease on n and its ancestors.
func (t *tree) lock(n int32) {
	for n != root {
		m := &t.nodes[n]
		if m.lock == 0 {
			t.locked += m.end - m.start
			if m.leaf >= 0 {
				t.dropLeaf(m.leaf)
			}
		}
		m.lock++
		n = m.parent
	}
}

// unlock takes the lease back.
func (t *tree) unlock(n int32) {
	for n != root {
		m := &t.nodes[n]
		m.lock--
		if m.lock == 0 {
			t.locked -= m.end - m.start
			if m.children == 0 {
				t.addLeaf(n)
			}
		}
		n = m.parent
	}
}

// insert puts the pages [from, to) of p below node at, which ends at from and is
// locked or the root. It returns the node that ends at to, and how many of the
// pages were not in the tree before.
func (t *tree) insert(at int32, p *kv.Prompt, from, to int32) (end, added int32) {
	if from == to {
		return at, 0
	}
	tick := t.nextTick()
	t.touch(at, tick)
	for cur := at; ; {
		n := &t.nodes[cur]
		if cur != root && n.children == 0 && (n.lock == 0 || cur == at && n.lock == 1) {
			t.append(cur, p, to, tick)
			return cur, to - from
		}
		child := t.index.Get(uint64(p.Block(int(from))))
		if child == 0 {
			return t.addChild(cur, p, from, to), to - from
		}
		n = &t.nodes[child]
		m := t.matchEdge(n, p, to)
		if m < n.end {
			u := t.split(child, m)
			if m == to {
				return u, 0
			}
			return t.addChild(u, p, m, to), to - m
		}
		n.tick = tick
		if n.leaf >= 0 {
			t.sink(n.leaf)
		}
		if cur, from = child, m; from == to {
			return cur, 0
		}
	}
}

// append extends leaf n in place up to page to.
func (t *tree) append(n int32, p *kv.Prompt, to int32, tick int64) {
	m := &t.nodes[n]
	t.pages += to - m.end
	if m.lock > 0 {
		t.locked += to - m.end
	}
	m.extend(p, to)
	m.tick = tick
	if m.leaf >= 0 {
		t.sink(m.leaf)
	}
}

func (t *tree) addChild(parent int32, p *kv.Prompt, from, to int32) int32 {
	c := t.make(parent, from)
	n := &t.nodes[c]
	n.extend(p, to)
	n.tick = t.nextTick()
	t.pages += to - from
	t.nodes[parent].children++
	t.index.Put(uint64(n.edge[0].first), c)
	t.addLeaf(c)
	return c
}

// exclusive reports whether inserts from n extend it in place: it is a leaf that
// one lease holds.
func (t *tree) exclusive(n int32) bool {
	m := &t.nodes[n]
	return n != root && m.children == 0 && m.lock == 1
}

// tail is how many of need pages the oldest unlocked leaf can give.
func (t *tree) tail(need int32) int32 {
	n := &t.nodes[t.leaves[0]]
	return min(need, n.end-n.start)
}

// trim takes k pages from the tail of the oldest unlocked leaf, and the leaf with
// the last one; its parent may then become a candidate, with its own tick.
func (t *tree) trim(k int32) {
	l := t.leaves[0]
	n := &t.nodes[l]
	t.pages -= k
	n.end -= k
	if n.end == n.start {
		t.remove(l)
		return
	}
	for n.edge[len(n.edge)-1].at >= n.end {
		n.edge = n.edge[:len(n.edge)-1]
	}
}

// remove takes out the oldest leaf, whose edge is used up.
func (t *tree) remove(l int32) {
	t.dropLeaf(0)
	n := &t.nodes[l]
	t.index.Drop(uint64(n.edge[0].first))
	t.spare = append(t.spare, l)
	up := &t.nodes[n.parent]
	up.children--
	if n.parent != root && up.children == 0 && up.lock == 0 {
		t.addLeaf(n.parent)
	}
}

// The heap of leaves: parent of place i is (i-1)/2, no two ticks are equal.

func (t *tree) addLeaf(n int32) {
	t.leaves = append(t.leaves, n)
	t.rise(int32(len(t.leaves) - 1))
}

func (t *tree) dropLeaf(i int32) {
	last := int32(len(t.leaves) - 1)
	t.nodes[t.leaves[i]].leaf = -1
	moved := t.leaves[last]
	t.leaves = t.leaves[:last]
	if i < last {
		t.leaves[i] = moved
		t.nodes[moved].leaf = i
		t.rise(i)
		t.sink(t.nodes[moved].leaf)
	}
}

func (t *tree) rise(i int32) {
	n := t.leaves[i]
	for i > 0 {
		up := t.leaves[(i-1)/2]
		if t.nodes[up].tick < t.nodes[n].tick {
			break
		}
		t.leaves[i] = up
		t.nodes[up].leaf = i
		i = (i - 1) / 2
	}
	t.leaves[i] = n
	t.nodes[n].leaf = i
}

func (t *tree) sink(i int32) {
	n := t.leaves[i]
	size := int32(len(t.leaves))
	for {
		c := 2*i + 1
		if c >= size {
			break
		}
		if c+1 < size && t.nodes[t.leaves[c+1]].tick < t.nodes[t.leaves[c]].tick {
			c++
		}
		if t.nodes[n].tick < t.nodes[t.leaves[c]].tick {
			break
		}
		t.leaves[i] = t.leaves[c]
		t.nodes[t.leaves[i]].leaf = i
		i = c
	}
	t.leaves[i] = n
	t.nodes[n].leaf = i
}

// check returns the first broken law of the tree.
func (t *tree) check() error {
	dead := make([]bool, len(t.nodes))
	for _, s := range t.spare {
		dead[s] = true
	}
	children := make([]int32, len(t.nodes))
	var pages, locked, edges, leaves int32
	for i := 1; i < len(t.nodes); i++ {
		if dead[i] {
			continue
		}
		n := &t.nodes[i]
		up := &t.nodes[n.parent]
		children[n.parent]++
		edges++
		pages += n.end - n.start
		if n.lock > 0 {
			locked += n.end - n.start
		}
		if n.leaf >= 0 {
			leaves++
		}
		switch {
		case n.start >= n.end || n.start != up.end:
			return fmt.Errorf("radix tree: node %d spans pages [%d, %d) below one that ends at %d", i, n.start, n.end, up.end)
		case n.parent != root && up.lock < n.lock:
			return fmt.Errorf("radix tree: node %d is locked %d times, its parent %d times", i, n.lock, up.lock)
		case t.index.Get(uint64(n.edge[0].first)) != int32(i):
			return fmt.Errorf("radix tree: first page of node %d leads to node %d", i, t.index.Get(uint64(n.edge[0].first)))
		case (n.leaf >= 0) != (n.lock == 0 && n.children == 0):
			return fmt.Errorf("radix tree: node %d with lock %d and %d children is candidate %d", i, n.lock, n.children, n.leaf)
		case n.leaf > 0 && t.nodes[t.leaves[(n.leaf-1)/2]].tick > n.tick:
			return fmt.Errorf("radix tree: candidate %d is older than its parent in the heap", i)
		}
	}
	for i := range t.nodes {
		if !dead[i] && children[i] != t.nodes[i].children {
			return fmt.Errorf("radix tree: node %d has %d children, counts %d", i, children[i], t.nodes[i].children)
		}
	}
	if pages != t.pages || locked != t.locked || int(edges) != t.index.Len() || int(leaves) != len(t.leaves) {
		return fmt.Errorf("radix tree: pages %d counted %d, locked %d counted %d, edges %d counted %d, candidates %d counted %d",
			pages, t.pages, locked, t.locked, edges, t.index.Len(), leaves, len(t.leaves))
	}
	return nil
}
