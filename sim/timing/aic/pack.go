package aic

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
// keys of the model configurations that a model reads. modelsDir may be empty when
// the wheel holds them. The same input gives the same bytes.
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

// appendBlock writes a flag (1 deflated), the stored size and the bytes.
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

// modelKeys are the configuration keys that a model reads; the rest is not kept.
var modelKeys = []string{
	"architectures", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
	"head_dim", "attention_head_dim", "intermediate_size", "vocab_size", "max_position_embeddings",
	"num_experts_per_tok", "top_k_experts", "moe_top_k", "num_local_experts", "n_routed_experts",
	"moe_num_experts", "num_experts", "moe_intermediate_size", "v_head_dim", "kv_lora_rank", "qk_rope_head_dim",
	"quantization_config", "text_config", "quantization",
}

var quantKeys = []string{
	"quant_algo", "quant_method", "quantization_method", "weight_block_size", "kv_cache_quant_algo",
	"kv_cache_quant_method", "kv_cache_dtype", "kv_cache_scheme", "activation_scheme", "config_groups",
	"modules_to_not_convert", "exclude_modules", "ignore",
}

var layerNumber = regexp.MustCompile(`\.[0-9]+\.`)

// reduce keeps the keys that are read; module lists lose their layer numbers and
// repetitions, since only names matter.
func reduce(o object, keys []string) object {
	out := object{}
	for _, k := range keys {
		v, ok := o[k]
		if !ok || v == nil {
			continue
		}
		switch x := v.(type) {
		case object:
			switch k {
			case "quantization_config", "quantization":
				v = reduce(x, quantKeys)
			case "text_config":
				v = reduce(x, modelKeys)
			}
		case []any:
			if k == "modules_to_not_convert" || k == "exclude_modules" || k == "ignore" {
				v = shortPatterns(x)
			}
		}
		out[k] = v
	}
	return out
}

func shortPatterns(list []any) []any {
	var out []any
	seen := map[string]bool{}
	for _, e := range list {
		s, _ := e.(string)
		s = layerNumber.ReplaceAllString(s, ".*.")
		s = layerNumber.ReplaceAllString(s, ".*.")
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// packModels writes models.json from the model_configs beside the systems directory.
func packModels(src, dst string) error {
	fsys, err := openModelConfigs(src)
	if err != nil {
		return err
	}
	files, err := fs.Glob(fsys, "*_config.json")
	if err != nil {
		return err
	}
	out := map[string]map[string]object{}
	for _, f := range files {
		data, err := fs.ReadFile(fsys, f)
		if err != nil {
			return err
		}
		o, err := parseObject(f, data)
		if err != nil {
			return err
		}
		name, part := strings.TrimSuffix(f, "_config.json"), "config"
		if strings.HasSuffix(name, "_hf_quant") {
			name, part = strings.TrimSuffix(name, "_hf_quant"), "hf_quant"
		}
		name = strings.Replace(name, "--", "/", 1)
		if out[name] == nil {
			out[name] = map[string]object{}
		}
		out[name][part] = reduce(o, modelKeys)
	}
	for _, parts := range out {
		if archs, _ := parts["config"]["architectures"].([]any); len(archs) == 0 || families[fmt.Sprint(archs[0])] == "" {
			parts["config"] = object{"architectures": archs} // not supported: its name is enough for the message
			delete(parts, "hf_quant")
		}
	}
	data, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dst, "models.json"), append(data, '\n'))
}
