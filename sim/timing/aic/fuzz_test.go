package aic

import (
	"archive/zip"
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"
)

func FuzzYAML(f *testing.F) {
	for _, name := range []string{"query_versions.yaml", "attention_lane_defaults.yaml", "b60.yaml"} {
		data, err := embedded.ReadFile("data/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("reuse:\n- table: moe_perf\n  reason: >-\n    one\n    two\n  list: [a, 'b c', {k: v}]\n")
	f.Add("a: {b: [c, d}")
	f.Fuzz(func(t *testing.T, s string) {
		if doc, err := parseYAML("x.yaml", []byte(s)); err == nil {
			parseSlots(doc, "h200_sxm", "vllm")
			scalarText(doc, "gpu", "mem_bw")
		} else if !strings.HasPrefix(err.Error(), "x.yaml:") {
			t.Errorf("no position: %v", err)
		}
		parseSystem("x", "x.yaml", []byte(s))
	})
}

func FuzzCheckpoint(f *testing.F) {
	all, err := bundledModels()
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range all {
		f.Add([]byte(m.Config), []byte(m.HFQuant))
	}
	f.Add([]byte(`{"architectures":["LlamaForCausalLM"],"x":NaN,"num_hidden_layers":-1}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, config, hf []byte) {
		c, err := parseCheckpoint("m", config, hf)
		if err != nil {
			return
		}
		for _, b := range backends {
			q, err := c.quantModes(quant{}, b)
			if err == nil {
				c.check(parallel{2, 1, 1, 1, 2}, q)
				c.kvBytesPerToken(2, q.kv)
			}
		}
	})
}

func FuzzParquet(f *testing.F) {
	f.Add(miniTable(f))
	f.Add([]byte("PAR1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := readParquet("x.parquet", data)
		if err == nil {
			buildTable("gemm_perf", "h200_sxm", []source{{rows: r}})
		}
	})
}

func FuzzPackedTable(f *testing.F) {
	b := newBuilder()
	b.add(sliceKey{b.word("fp8"), 1, 2}, 1, 2, 3, 4.5, true)
	b.add(sliceKey{b.word("bfloat16"), 1, 2}, 1, 2, 3, 4.5, false)
	f.Add(encodeTable(b.finish()))
	f.Fuzz(func(t *testing.T, data []byte) {
		if t, err := decodeTable(data); err == nil {
			t.ownOnly()
		}
	})
}

func FuzzBatch(f *testing.F) {
	data, err := os.ReadFile("testdata/steps.csv")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:600])
	f.Add([]byte("model,system,backend,version,parallel,phase,batch,length,prefix\nQwen/Qwen3-32B,h200_sxm,vllm,,tp_size=2,decode,4294967295,4294967295,1\n"))
	f.Add([]byte("model,system,backend,parallel,memory_fraction,block_size,max_num_batched_tokens\nQwen/Qwen3-32B,h200_sxm,vllm,tp_size=65536,2,0,1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		BatchSteps(t.Context(), &out, bytes.NewReader(data), "", ModelConfig{})
		BatchCapacity(t.Context(), &out, bytes.NewReader(data), "", ModelConfig{})
	})
}

// Whatever an archive says of its members, it is read in bounded memory or refused.
func FuzzWheel(f *testing.F) {
	f.Add(wheel(f, miniTree(f)))
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, data []byte) {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		r, err := rootIn(z, "x.whl")
		if err != nil {
			return
		}
		for _, name := range r.systems {
			sys, err := r.system(name)
			if err != nil {
				continue
			}
			for _, v := range r.versionsOf(sys, "vllm") {
				r.table(sys, "vllm", v, "gemm_perf")
			}
		}
	})
}

// wheel packs files as a wheel does.
func wheel(tb testing.TB, files map[string][]byte) []byte {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for name, data := range files {
		w, err := z.Create("some_package/systems/" + name)
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// A member that unpacks to more than any table has is refused before it is all unpacked.
func TestAMemberOfAWheelIsBounded(t *testing.T) {
	const limit = 1 << 20
	packed := wheel(t, map[string][]byte{"bomb.parquet": make([]byte, 64*limit), "good.yaml": make([]byte, limit)})
	z, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := readBounded(z, "some_package/systems/good.yaml", limit); err != nil || len(data) != limit {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = readBounded(z, "some_package/systems/bomb.parquet", limit)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "bomb.parquet: more than 1 MiB") {
		t.Errorf("refused with %v", err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 16*limit {
		t.Errorf("%d bytes for a member of at most %d", taken, limit)
	}
}
