package aic

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// A packed file holds the merged tables of one system and backend: magic, table
// count, per table its name and size, then the tables. A table is a deflated stream
// of varints (words, keys, axes, runs of own rows) and the eight byte planes of its
// latencies, each deflated where that helps.
const packMagic = "aictab1\n"

// packName is the file of one system and backend at one version.
func packName(system, backend, version string) string {
	return "tables/" + system + "-" + backend + "-" + version + ".bin"
}

// Pack converts a systems directory or wheel into the embedded form under dst: system
// files, version slots, merged tables of the given systems at slot current, and the
// keys that a model reads of the configurations beside it. The same input gives the
// same bytes.
func Pack(src, dst string, systems []string) error {
	r, err := openRoot(src)
	if err != nil {
		return err
	}
	if err := packDocuments(r, dst); err != nil {
		return err
	}
	for _, name := range systems {
		sys, err := r.system(name)
		if err != nil {
			return err
		}
		for _, backend := range backends {
			s, err := r.slots(name, backend)
			if err != nil {
				return err
			}
			if err := packTables(r, sys, backend, s.current, tableNames, filepath.Join(dst, packName(name, backend, s.current))); err != nil {
				return err
			}
		}
		if err := packTables(r, sys, "", "", []string{"nccl_perf"}, filepath.Join(dst, packName(name, "nccl", sys.ncclVersion))); err != nil {
			return err
		}
	}
	return packModels(src, dst)
}

// packDocuments copies the YAML files and lists what was measured.
func packDocuments(r *root, dst string) error {
	files := []string{"query_versions.yaml", "attention_lane_defaults.yaml"}
	var lines []string
	for _, name := range r.systems {
		files = append(files, name+".yaml")
		sys, err := r.system(name)
		if err != nil {
			return err
		}
		for _, b := range backends {
			versions := slices.Clone(r.versionsOf(sys, b))
			sort.Strings(versions)
			for _, v := range versions {
				lines = append(lines, name+" "+b+" "+v)
			}
		}
	}
	for _, f := range files {
		data, err := fs.ReadFile(r.fsys, f)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dst, f), data); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(dst, "versions.txt"), []byte(strings.Join(lines, "\n")+"\n"))
}

func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

func packTables(r *root, sys *System, backend, version string, names []string, file string) error {
	var head, body bytes.Buffer
	head.WriteString(packMagic)
	var index []byte
	n := 0
	for _, name := range names {
		t, err := r.table(sys, backend, version, name)
		if err != nil {
			return err
		}
		if t == nil {
			continue
		}
		blob := encodeTable(t)
		index = binary.AppendUvarint(index, uint64(len(name)))
		index = append(index, name...)
		index = binary.AppendUvarint(index, uint64(len(blob)))
		body.Write(blob)
		n++
	}
	head.Write(binary.AppendUvarint(nil, uint64(n)))
	head.Write(index)
	head.Write(body.Bytes())
	return writeFile(file, head.Bytes())
}

func deflate(b []byte) []byte {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.BestCompression) // fails on a bad level only
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// appendBlock writes a flag (1 deflated), both sizes and the bytes.
func appendBlock(out, b []byte) []byte {
	flag, stored := byte(0), b
	if d := deflate(b); len(d) < len(b)*15/16 {
		flag, stored = 1, d
	}
	out = append(out, flag)
	out = binary.AppendUvarint(out, uint64(len(b)))
	out = binary.AppendUvarint(out, uint64(len(stored)))
	return append(out, stored...)
}

func encodeTable(t *table) []byte {
	var meta []byte
	put := func(v uint64) { meta = binary.AppendUvarint(meta, v) }
	put(uint64(len(t.words)))
	for _, w := range t.words {
		put(uint64(len(w)))
		meta = append(meta, w...)
	}
	put(uint64(len(t.slices)))
	var last sliceKey
	var ms []float64
	var own []bool
	for i := range t.slices {
		s := &t.slices[i]
		for k, v := range s.key {
			meta = binary.AppendVarint(meta, int64(v)-int64(last[k]))
		}
		last = s.key
		ms, own = append(ms, s.ms...), append(own, s.own...)
		meta = appendAxis(meta, s.k0)
		for i := range s.k0 {
			meta = appendAxis(meta, s.k1[s.off0[i]:s.off0[i+1]])
		}
		for j := range s.k1 {
			meta = appendAxis(meta, s.k2[s.off1[j]:s.off1[j+1]])
		}
	}
	meta = appendRuns(meta, own)
	out := appendBlock(nil, meta)
	plane := make([]byte, len(ms))
	for p := range 8 {
		for i, v := range ms {
			plane[i] = byte(math.Float64bits(v) >> (8 * (7 - p)))
		}
		out = appendBlock(out, plane)
	}
	return out
}

// appendAxis writes ascending whole keys as a count and differences.
func appendAxis(out []byte, keys []float64) []byte {
	out = binary.AppendUvarint(out, uint64(len(keys)))
	last := int64(0)
	for _, k := range keys {
		out = binary.AppendVarint(out, int64(k)-last)
		last = int64(k)
	}
	return out
}

// appendRuns writes the lengths of alternating runs, the first of true.
func appendRuns(out []byte, own []bool) []byte {
	for i, value := 0, true; i < len(own); value = !value {
		from := i
		for i < len(own) && own[i] == value {
			i++
		}
		out = binary.AppendUvarint(out, uint64(i-from))
	}
	return out
}
