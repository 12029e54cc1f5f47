package aic

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

type gemmLine struct {
	kernel, dtype string
	m, n, k       int64
	ms            float64
}

// gemmParquet writes a GEMM table; text is string, large_string or dictionary.
func gemmParquet(tb testing.TB, text string, lines []gemmLine) []byte {
	tb.Helper()
	var kind arrow.DataType
	switch text {
	case "large_string":
		kind = arrow.BinaryTypes.LargeString
	case "dictionary":
		kind = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	default:
		kind = arrow.BinaryTypes.String
	}
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "kernel_source", Type: kind}, {Name: "gemm_dtype", Type: kind},
		{Name: "m", Type: arrow.PrimitiveTypes.Int64}, {Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "k", Type: arrow.PrimitiveTypes.Int64},
		{Name: "latency", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, l := range lines {
		for i, s := range []string{l.kernel, l.dtype} {
			switch f := b.Field(i).(type) {
			case *array.StringBuilder:
				f.Append(s)
			case *array.LargeStringBuilder:
				f.Append(s)
			case *array.BinaryDictionaryBuilder:
				if err := f.AppendString(s); err != nil {
					tb.Fatal(err)
				}
			}
		}
		for i, v := range []int64{l.m, l.n, l.k} {
			b.Field(2 + i).(*array.Int64Builder).Append(v)
		}
		b.Field(5).(*array.Float64Builder).Append(l.ms)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &out, parquet.NewWriterProperties(), pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		tb.Fatal(err)
	}
	if err := w.Write(rec); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func miniTable(tb testing.TB) []byte {
	return gemmParquet(tb, "string", []gemmLine{{"a", "fp8", 1, 2, 3, 4}, {"b", "bfloat16", 1, 2, 3, 5}})
}

const miniSystem = `data_dir: data/toy # relative
gpu:
  mem_bw: 1000000000000
  mem_capacity: 80000000000
  bfloat16_tc_flops: 1000000000000000
  sm_version: 90
node:
  num_gpus_per_node: 8
  intra_node_bw: 450000000000
  inter_node_bw: 50000000000
misc:
  nccl_mem: {1: 0, 2: 10}
  nccl_version: '2.1'`

// miniTree is a systems tree with every channel of spec aic-perfmodel 3.3.
func miniTree(t testing.TB) map[string][]byte {
	line := func(kernel string, n int64, ms float64) gemmLine {
		return gemmLine{kernel, "bfloat16", 8, n, 64, ms}
	}
	return map[string][]byte{
		"query_versions.yaml":          []byte("schema_version: 1\ndefaults:\n  vllm: {current: \"0.9.0\", previous: null}\n  sglang: {current: 0.5.1, previous: 0.5.0}\noverrides:\n  old:\n    vllm: {current: 0.1.0}\n"),
		"attention_lane_defaults.yaml": []byte("vllm:\n  \"0.9.0\":\n    90: default\n"),
		"perf_data_reuse_manifest.yaml": []byte("groups:\n  - op_file: gemm_perf.parquet\n    kernel_source: 'shared'\n    tier: shared\n    frameworks: [sglang, vllm]\n" +
			"  - op_file: gemm_perf.parquet\n    kernel_source: 'inert'\n    tier: absence_load_bearing\n    frameworks: [sglang, vllm]\n"),
		"toy.yaml": []byte(miniSystem),
		"data/toy/gemm/vllm/0.9.0/gemm_perf.parquet":    gemmParquet(t, "string", []gemmLine{line("x", 1, 10), line("y", 1, 11), {"z", "awq", 1, 1, 1, 1}}),
		"data/toy/gemm/vllm/0.9.0/reuse.yaml":           []byte("reuse:\n- table: gemm_perf\n  from_version: 0.10.0\n  reason: >-\n    words: more\n    words\n"),
		"data/toy/gemm/vllm/0.10.0/gemm_perf.parquet":   gemmParquet(t, "large_string", []gemmLine{line("x", 1, 20), line("x", 2, 21)}),
		"data/toy/gemm/vllm/0.8.0/gemm_perf.parquet":    gemmParquet(t, "dictionary", []gemmLine{line("x", 2, 30), line("x", 3, 31)}),
		"data/toy/gemm/vllm/0.8.0rc3/gemm_perf.parquet": gemmParquet(t, "string", []gemmLine{line("x", 3, 40), line("x", 4, 41)}),
		"data/toy/gemm/vllm/nightly/gemm_perf.parquet":  gemmParquet(t, "string", []gemmLine{line("x", 9, 99)}),
		"data/toy/gemm/sglang/0.5.1/gemm_perf.parquet":  gemmParquet(t, "string", []gemmLine{line("shared", 4, 50), line("shared", 5, 51), line("own", 6, 52), line("inert", 7, 53)}),
	}
}

func writeTree(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if err := writeFile(filepath.Join(dir, name), data); err != nil {
			t.Fatal(err)
		}
	}
}

// sitesOf returns n -> ms of the table's sites.
func sitesOf(t *table) map[int32]float64 {
	out := map[int32]float64{}
	for i := range t.slices {
		out[t.slices[i].key[1]] = t.slices[i].ms[0]
	}
	return out
}

func TestSourcesMergeInOrder(t *testing.T) {
	files := miniTree(t)
	dir := t.TempDir()
	writeTree(t, dir, files)
	archive := filepath.Join(t.TempDir(), "package.whl")
	if err := os.WriteFile(archive, wheel(t, files), 0o644); err != nil {
		t.Fatal(err)
	}
	want := map[int32]float64{1: 10, 2: 21, 3: 31, 4: 41, 5: 51}
	for _, path := range []string{dir, archive} {
		db, err := Open(Config{System: "toy", Backend: "vllm", SystemsPath: path})
		if err != nil {
			t.Fatal(err)
		}
		table, err := db.table("gemm_perf", false)
		if err != nil {
			t.Fatal(err)
		}
		if got := sitesOf(table); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: sites %v, want %v", path, got, want)
		}
		own, err := db.table("gemm_perf", true)
		if err != nil {
			t.Fatal(err)
		}
		if got := sitesOf(own); !reflect.DeepEqual(got, map[int32]float64{1: 10}) {
			t.Errorf("own sites %v", got)
		}
		if _, err := db.table("moe_perf", false); err == nil || !strings.Contains(err.Error(), "moe_perf") {
			t.Errorf("absent table: %v", err)
		}
		v, err := Versions(path, "toy", "vllm")
		if v != "{current 0.9.0, next 0.10.0}" {
			t.Errorf("slots %v, %v", v, err)
		}
	}
}

func TestPackedTableIsTheMergedOne(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, miniTree(t))
	db, err := Open(Config{System: "toy", Backend: "vllm", SystemsPath: dir})
	if err != nil {
		t.Fatal(err)
	}
	want, err := db.table("gemm_perf", false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeTable(encodeTable(want))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestUnreadableSources(t *testing.T) {
	for name, data := range map[string]string{
		"git-lfs": "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n",
		"parquet": "PAR1 nothing here PAR1",
	} {
		files := miniTree(t)
		files["data/toy/gemm/vllm/0.9.0/gemm_perf.parquet"] = []byte(data)
		dir := t.TempDir()
		writeTree(t, dir, files)
		db, err := Open(Config{System: "toy", Backend: "vllm", SystemsPath: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.table("gemm_perf", false); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "gemm_perf.parquet") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(Config{System: "toy", Backend: "vllm", SystemsPath: t.TempDir()}); err == nil {
		t.Error("an empty directory opened")
	}
	if _, err := Open(Config{System: "toy", Backend: "vllm", SystemsPath: "spec_test.go"}); err == nil {
		t.Error("a source file opened as a wheel")
	}
}

// A system's files are refused with the place of the fault, none is passed over.
func TestFaultsOfSystemFiles(t *testing.T) {
	for _, c := range []struct{ name, file, from, to, want string }{
		{"number", "toy.yaml", "sm_version: 90", "sm_version: ninety", `toy.yaml: gpu.sm_version: must be a number of at least 0, got "ninety"`},
		{"not a number", "toy.yaml", "sm_version: 90", "mem_empirical_constant_latency: nan", "toy.yaml: gpu.mem_empirical_constant_latency: must be"},
		{"absent", "toy.yaml", "  mem_bw: 1000000000000\n", "", "toy.yaml: gpu.mem_bw: must be a positive number"},
		{"reuse", "data/toy/gemm/vllm/0.9.0/reuse.yaml", "reuse:", "reuse: [", "reuse.yaml:1: "},
		{"collectives", "toy.yaml", "1: 0, ", "", "toy.yaml: misc.nccl_mem: no entry for 1 GPUs"},
		{"peak of an fp8 cache", "toy.yaml", "", "", "toy has no fp8_tc_flops (it has bfloat16_tc_flops)"},
	} {
		files := miniTree(t)
		files[c.file] = []byte(strings.Replace(string(files[c.file]), c.from, c.to, 1))
		dir := t.TempDir()
		writeTree(t, dir, files)
		db, err := Open(Config{System: "toy", Backend: "vllm", SystemsPath: dir})
		if err == nil {
			_, err = db.table("gemm_perf", false)
		}
		if err == nil {
			var m *Model
			config := ModelConfig{Model: "Qwen/Qwen3-0.6B", Mode: SOL}
			if c.from == "" {
				config.KVCache = "fp8"
			}
			if m, err = NewModel(db, config); err == nil {
				_, err = m.Capacity(CapacityConfig{BlockSize: 16, MaxNumBatchedTokens: 1})
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestVersionOrders(t *testing.T) {
	for _, pair := range [][2]string{{"1.3.0rc20", "1.3.0"}, {"1.3.0rc9", "1.3.0rc20"}, {"0.9.0", "0.10.0"}, {"0.5.6", "0.5.6.post2"}, {"0.1.dev19262", "0.1"}, {"0.5.6.post2", "0.5.7"}} {
		a, okA := pepKey(pair[0])
		b, okB := pepKey(pair[1])
		if !okA || !okB || !pepLess(a, b) || pepLess(b, a) {
			t.Errorf("%s does not precede %s: %v %v", pair[0], pair[1], a, b)
		}
	}
	if !slotLess("1.3.0rc20", "1.3.0rc23") || !slotLess("1.3.0rc23", "1.3.0") || slotLess("0.24.0", "0.19.0") {
		t.Error("slot order")
	}
	if _, ok := pepKey("nightly"); ok {
		t.Error("nightly is a version")
	}
}

// TestLaneOrder is spec aic-perfmodel 5.3.
func TestLaneOrder(t *testing.T) {
	for _, c := range []struct {
		system, backend, table string
		want                   []string
	}{
		{"h100_sxm", "vllm", "context_attention_perf", []string{"vllm_flash_attn_fa3", "vllm_flash_attn_fa4"}},
		{"h200_sxm", "vllm", "generation_attention_perf", []string{"vllm_flash_attn_fa3", "vllm_flash_attn_fa4"}},
		{"b200_sxm", "vllm", "context_attention_perf", []string{"vllm_flashinfer_trtllmprefill", "vllm_flashinfer_trtllmdecode", "vllm_triton_attn"}},
		{"b200_sxm", "vllm", "generation_attention_perf", []string{"vllm_flashinfer_trtllmdecode", "vllm_triton_attn"}},
		{"h200_sxm", "sglang", "context_attention_perf", []string{"fa3", "triton"}},
		{"b200_sxm", "sglang", "generation_attention_perf", []string{"triton", "trtllm_mha", "flashinfer"}},
		{"h200_sxm", "trtllm", "context_attention_perf", []string{"default"}},
	} {
		db, err := Open(Config{System: c.system, Backend: c.backend})
		if err != nil {
			t.Fatal(err)
		}
		table, err := db.table(c.table, false)
		if err != nil {
			t.Fatal(err)
		}
		b := &binder{sys: db.System, db: db, lanes: db.root.lanesY, backend: db.Backend, version: db.Version}
		order, err := b.laneOrder(table, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range order {
			if table.word(l) >= 0 || len(order) == 1 {
				got = append(got, l)
			}
		}
		if len(got) < len(c.want) || !reflect.DeepEqual(got[:len(c.want)], c.want) {
			t.Errorf("%s %s %s: %v, want first %v", c.system, c.backend, c.table, got, c.want)
		}
	}
}

func TestEmbeddedDataIsWhole(t *testing.T) {
	size := 0
	err := fs.WalkDir(embedded, "data", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			size += int(info.Size())
		}
		return err
	})
	if err != nil || size > 25<<20 {
		t.Errorf("%d bytes, %v", size, err)
	}
	for _, system := range []string{"b200_sxm", "h100_sxm", "h200_sxm"} {
		for _, backend := range backends {
			db, err := Open(Config{System: system, Backend: backend})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range append([]string{"nccl_perf"}, tableNames...) {
				if backend == "sglang" && strings.Contains(name, "_module_") || backend == "vllm" && (name == "context_mla_perf" || name == "generation_mla_perf") {
					continue // not measured there
				}
				if _, err := db.table(name, false); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
