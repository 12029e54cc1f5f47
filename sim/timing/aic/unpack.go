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
	n := m.uint(1 << 20)
	var last sliceKey
	total := 0
	for i := 0; i < n && m.err == nil; i++ {
		for k := range last {
			last[k] += int32(m.int())
		}
		s := slice{key: last}
		s.k0 = m.axis(nil)
		for range s.k0 {
			s.off0 = append(s.off0, int32(len(s.k1)))
			s.k1 = m.axis(s.k1)
		}
		s.off0 = append(s.off0, int32(len(s.k1)))
		for range s.k1 {
			s.off1 = append(s.off1, int32(len(s.k2)))
			s.k2 = m.axis(s.k2)
		}
		s.off1 = append(s.off1, int32(len(s.k2)))
		total += len(s.k2)
		t.slices = append(t.slices, s)
	}
	own := m.runs(total)
	ms := u.planes(total)
	if m.err != nil || u.err != nil {
		return nil, errDamaged
	}
	at := 0
	for i := range t.slices {
		s := &t.slices[i]
		end := at + len(s.k2)
		s.ms, s.own = ms[at:end:end], own[at:end:end]
		at = end
	}
	t.reindex()
	return t, nil
}

func (u *unpacker) axis(keys []float64) []float64 {
	n := u.uint(1 << 20)
	if keys == nil {
		keys = make([]float64, 0, min(n, len(u.b)))
	}
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

func (u *unpacker) planes(total int) []float64 {
	var planes [8][]byte
	for p := range planes {
		if planes[p] = u.block(); len(planes[p]) != total && u.err == nil {
			u.err = errDamaged
		}
	}
	if u.err != nil {
		return nil
	}
	ms := make([]float64, total)
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
func (r *root) packedTable(system, backend, version, name string) (*table, error) {
	file := packName(system, backend, version)
	if name == "nccl_perf" || name == "oneccl_perf" {
		sys, err := r.system(system)
		if err != nil {
			return nil, err
		}
		file = packName(system, strings.TrimSuffix(name, "_perf"), sys.ncclVersion)
	}
	f, err := r.fsys.Open(file)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 4096)
	magic := make([]byte, len(packMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != packMagic {
		return nil, fmt.Errorf("%s: %w", file, errDamaged)
	}
	n, err := binary.ReadUvarint(in)
	skip, size := uint64(0), uint64(0)
	for i := uint64(0); i < n && err == nil; i++ {
		var length, blob uint64
		if length, err = binary.ReadUvarint(in); err != nil || length > 1<<10 {
			return nil, fmt.Errorf("%s: %w", file, errDamaged)
		}
		title := make([]byte, length)
		if _, err = io.ReadFull(in, title); err == nil {
			blob, err = binary.ReadUvarint(in)
		}
		if string(title) == name {
			size = blob
		} else if size == 0 {
			skip += blob
		}
	}
	if err != nil || skip > maxPacked || size > maxPacked {
		return nil, fmt.Errorf("%s: %w", file, errDamaged)
	}
	if size == 0 {
		return nil, nil
	}
	if _, err := in.Discard(int(skip)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	blob := make([]byte, size)
	if _, err := io.ReadFull(in, blob); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t, err := decodeTable(blob)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", file, name, err)
	}
	return t, nil
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
