package aic

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"
)

// unpacker reads varints; after an error it gives zeros.
type unpacker struct {
	b   []byte
	err error
}

func (u *unpacker) uint(limit int) int {
	v, n := binary.Uvarint(u.b)
	if n <= 0 || v > uint64(limit) {
		u.err = errDamaged
		u.b = nil
		return 0
	}
	u.b = u.b[n:]
	return int(v)
}

func (u *unpacker) int() int64 {
	v, n := binary.Varint(u.b)
	if n <= 0 {
		u.err = errDamaged
		u.b = nil
		return 0
	}
	u.b = u.b[n:]
	return v
}

func (u *unpacker) bytes(n int) []byte {
	if n > len(u.b) {
		u.err = errDamaged
		u.b = nil
		return nil
	}
	out := u.b[:n]
	u.b = u.b[n:]
	return out
}

var errDamaged = fmt.Errorf("damaged packed tables")

// maxPacked bounds sizes that a packed file claims.
const maxPacked = 1 << 26

func (u *unpacker) block() []byte {
	flag := u.bytes(1)
	size, stored := u.uint(maxPacked), u.uint(maxPacked)
	b := u.bytes(stored)
	if u.err != nil || flag[0] == 0 {
		return b
	}
	out := make([]byte, size)
	if _, err := io.ReadFull(flate.NewReader(bytes.NewReader(b)), out); err != nil {
		u.err = fmt.Errorf("%w: %v", errDamaged, err)
	}
	return out
}

func decodeTable(blob []byte) (*table, error) {
	u := &unpacker{b: blob}
	m := &unpacker{b: u.block()}
	if u.err != nil {
		return nil, u.err
	}
	t := &table{}
	for range m.uint(1 << 16) {
		t.words = append(t.words, string(m.bytes(m.uint(1<<10))))
	}
	ms := u.planes()
	trees := m.slices(t, len(ms))
	own := m.runs(len(ms))
	if m.err != nil || u.err != nil || len(trees.k2) != len(ms) {
		return nil, errDamaged
	}
	at := [5]int{}
	for i := range t.slices {
		s, end := &t.slices[i], trees.ends[i]
		s.k0, s.off0 = trees.k0[at[0]:end[0]:end[0]], trees.off0[at[1]:end[1]:end[1]]
		s.k1, s.off1 = trees.k1[at[2]:end[2]:end[2]], trees.off1[at[3]:end[3]:end[3]]
		s.k2, s.ms, s.own = trees.k2[at[4]:end[4]:end[4]], ms[at[4]:end[4]:end[4]], own[at[4]:end[4]:end[4]]
		at = end
	}
	t.reindex()
	return t, nil
}

// packedTrees are the axes of all slices one after the other, and where each slice
// ends: k0, off0, k1, off1, k2.
type packedTrees struct {
	tree
	ends [][5]int
}

// slices reads the keys and axes of a table of so many leaves.
func (u *unpacker) slices(t *table, leaves int) packedTrees {
	n := u.uint(1 << 20)
	var p packedTrees
	p.k2 = make([]float64, 0, leaves)
	var last sliceKey
	for i := 0; i < n && u.err == nil; i++ {
		for k := range last {
			last[k] += int32(u.int())
		}
		t.slices = append(t.slices, slice{key: last})
		from0, from1, from2 := len(p.k0), len(p.k1), len(p.k2)
		p.k0 = u.axis(p.k0)
		for range len(p.k0) - from0 {
			p.off0 = append(p.off0, int32(len(p.k1)-from1))
			p.k1 = u.axis(p.k1)
		}
		p.off0 = append(p.off0, int32(len(p.k1)-from1))
		for range len(p.k1) - from1 {
			p.off1 = append(p.off1, int32(len(p.k2)-from2))
			p.k2 = u.axis(p.k2)
		}
		p.off1 = append(p.off1, int32(len(p.k2)-from2))
		p.ends = append(p.ends, [5]int{len(p.k0), len(p.off0), len(p.k1), len(p.off1), len(p.k2)})
	}
	return p
}

func (u *unpacker) axis(keys []float64) []float64 {
	n := u.uint(1 << 20)
	last := int64(0)
	for i := 0; i < n && u.err == nil; i++ {
		last += u.int()
		keys = append(keys, float64(last))
	}
	return keys
}

func (u *unpacker) runs(total int) []bool {
	own := make([]bool, 0, total)
	for value := true; len(own) < total && u.err == nil; value = !value {
		for range u.uint(total - len(own)) {
			own = append(own, value)
		}
	}
	return own
}

func (u *unpacker) planes() []float64 {
	var planes [8][]byte
	for p := range planes {
		if planes[p] = u.block(); len(planes[p]) != len(planes[0]) && u.err == nil {
			u.err = errDamaged
		}
	}
	if u.err != nil {
		return nil
	}
	ms := make([]float64, len(planes[0]))
	for i := range ms {
		var v uint64
		for p := range planes {
			v = v<<8 | uint64(planes[p][i])
		}
		ms[i] = math.Float64frombits(v)
	}
	return ms
}

// packedTable reads one table of the embedded set, nil if it holds none.
func (r *root) packedTable(sys *System, backend, version, name string) (*table, error) {
	file := packName(sys.Name, backend, version)
	switch name {
	case "nccl_perf":
		file = packName(sys.Name, "nccl", sys.ncclVersion)
	case "oneccl_perf":
		file = packName(sys.Name, "oneccl", sys.onecclVersion)
	}
	f, err := r.fsys.Open(file)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 4096)
	skip, size, err := packedPlace(in, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if size == 0 {
		return nil, nil
	}
	blob := make([]byte, size)
	if _, err = in.Discard(skip); err == nil {
		_, err = io.ReadFull(in, blob)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t, err := decodeTable(blob)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", file, name, err)
	}
	return t, nil
}

// packedPlace reads the head of a packed file: the bytes between it and a table, and
// the table's size, 0 if the file does not hold it.
func packedPlace(in *bufio.Reader, name string) (skip, size int, err error) {
	magic := make([]byte, len(packMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != packMagic {
		return 0, 0, errDamaged
	}
	number := func(limit uint64) int {
		v, e := binary.ReadUvarint(in)
		if e != nil || v > limit {
			err = errDamaged
			return 0
		}
		return int(v)
	}
	for n := number(1 << 10); n > 0 && err == nil; n-- {
		title := make([]byte, number(1<<10))
		if _, e := io.ReadFull(in, title); e != nil {
			return 0, 0, errDamaged
		}
		blob := number(maxPacked)
		switch {
		case string(title) == name:
			size = blob
		case size == 0:
			skip += blob
		}
	}
	return skip, size, err
}

// hasPack reports whether the set holds the tables of a system, backend and version.
func (r *root) hasPack(system, backend, version string) bool {
	_, err := fs.Stat(r.fsys, packName(system, backend, version))
	return err == nil
}

// packs lists what the set holds, as "h200_sxm-vllm-0.24.0".
func (r *root) packs() []string {
	files, _ := fs.Glob(r.fsys, "tables/*.bin")
	var out []string
	for _, f := range files {
		if name := strings.TrimSuffix(path.Base(f), ".bin"); !strings.Contains(name, "-nccl-") {
			out = append(out, name)
		}
	}
	return out
}
