package aic

import (
	"bytes"
	"os"
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
