package planner

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	data := []byte(text)
	if strings.HasSuffix(name, ".gz") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(data)
		z.Close()
		data = b.Bytes()
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWarmupTraceIsCutIntoIntervals(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.jsonl", `{"timestamp":21000,"input_length":100,"output_length":10}`+"\n\n"+
		`{"timestamp":29999,"input_length":300,"output_length":20,"hash_ids":[1]}`)
	write(t, dir, "b.jsonl.gz", `{"timestamp":45000,"input_length":7,"output_length":9}`)
	write(t, dir, "c.txt", "not a trace")
	for _, path := range []string{dir, filepath.Join(dir, "*.jsonl*")} {
		got, err := readWarmup(path, 10)
		want := []warmWindow{{2, 200, 15}, {}, {1, 7, 9}}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v %v, want %v", path, got, err, want)
		}
	}
	dynamo := write(t, t.TempDir(), "d.jsonl",
		`{"schema":"dynamo.request.trace.v1","event_type":"request_start","event_time_unix_ms":1}`+"\n"+
			`{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1700000012000,"request":{"output_tokens":5,"replay":{"input_length":50}}}`+"\n"+
			`{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":9,"request":{"request_received_ms":1700000000000,"output_tokens":7,"replay":{"input_length":70}}}`)
	if got, err := readWarmup(dynamo, 10); err != nil || fmt.Sprint(got) != fmt.Sprint([]warmWindow{{1, 70, 7}, {1, 50, 5}}) {
		t.Errorf("request trace: %v %v", got, err)
	}
}

func TestWarmupFaultsNameTheLine(t *testing.T) {
	row := `{"timestamp":1,"input_length":1,"output_length":1}` + "\n"
	for text, want := range map[string]string{
		row + "x":  "t.jsonl:2: not a trace row",
		row + `{}`: "t.jsonl:2: timestamp: missing",
		row + `{"timestamp":1,"input_length":-1,"output_length":1}`:  "t.jsonl:2: input_length: must be >= 0, got -1",
		row + `{"timestamp":1,"input_length":1,"output_length":1.5}`: "t.jsonl:2: output_length: must be an integer, got 1.5",
		row + `{"schema":"dynamo.request.trace.v1"}`:                 "formats must not be mixed",
		`{"schema":"other"}`: "t.jsonl:1: schema must be dynamo.request.trace.v1, got other",
		`{"timestamp":1e300,"input_length":1,"output_length":1}` + "\n" + row: "spans more than",
		"": "no request in it",
	} {
		_, err := readWarmup(write(t, t.TempDir(), "t.jsonl", text), 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	dir := t.TempDir()
	write(t, dir, "a.jsonl", row)
	write(t, dir, "a.jsonl.gz", row)
	if _, err := readWarmup(dir, 1); err == nil || !strings.Contains(err.Error(), ".gz copy") {
		t.Errorf("both copies: %v", err)
	}
	if _, err := readWarmup(filepath.Join(dir, "none"), 1); err == nil {
		t.Error("a missing trace was read")
	}
}

func TestWarmupTeachesThePredictors(t *testing.T) {
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, `{"timestamp":%d,"input_length":100,"output_length":10}`+"\n", i*1000)
	}
	var f forecaster
	cfg := DefaultConfig().Predictor
	cfg.Kind, cfg.WarmupTrace = "constant", write(t, t.TempDir(), "t.jsonl", text.String())
	if err := f.init(cfg, 20); err != nil {
		t.Fatal(err)
	}
	if n, isl, osl := f.predict(); n != 20 || isl != 100 || osl != 10 {
		t.Errorf("%v %v %v, want 20 requests of 100 and 10 tokens", n, isl, osl)
	}
	f.observe(0, 0, 0) // an idle interval after warm-up is a leading zero again
	if n, isl, _ := f.predict(); n != 20 || isl != 100 {
		t.Errorf("%v %v: a leading zero was kept", n, isl)
	}
	f.observe(3, 50, 5)
	f.observe(0, 0, 0)
	if n, isl, osl := f.predict(); n != 0 || isl != 50 || osl != 5 {
		t.Errorf("%v %v %v, want 0 requests and the lengths seen last", n, isl, osl)
	}
}

func FuzzWarmup(f *testing.F) {
	f.Add(`{"timestamp":1,"input_length":1,"output_length":1}`)
	f.Add(`{"schema":"dynamo.request.trace.v1","event_type":"request_end","request":{"replay":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var r warmReader
		err := r.read("t.jsonl", strings.NewReader(text))
		if err != nil && !strings.HasPrefix(err.Error(), "t.jsonl:") {
			t.Errorf("no position: %v", err)
		}
		if err == nil && len(r.rows) > 0 {
			r.windows(10)
		}
	})
}

// npy is one array as numpy writes it.
func npy(descr string, values []float64) []byte {
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }\n", descr, len(values))
	var b bytes.Buffer
	b.WriteString("\x93NUMPY\x01\x00")
	binary.Write(&b, binary.LittleEndian, uint16(len(head)))
	b.WriteString(head)
	for _, v := range values {
		if descr == "<i8" {
			binary.Write(&b, binary.LittleEndian, int64(v))
		} else {
			binary.Write(&b, binary.LittleEndian, v)
		}
	}
	return b.Bytes()
}

func packNPZ(arrays map[string][]byte) string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, data := range arrays {
		w, _ := z.Create(name + ".npy")
		w.Write(data)
	}
	z.Close()
	return b.String()
}

func TestProfilerFolderBecomesAProfile(t *testing.T) {
	isl := []float64{100, 200, 400, 800, 1600, 3200}
	ttft := make([]float64, len(isl))
	for i, v := range isl { // linear in both features of a prompt
		ttft[i] = 5 + 0.01*v + 1e-6*(v*v/2+v/2)
	}
	var usage, context, itl []float64
	for _, u := range []float64{0.1, 0.3, 0.6, 0.9} {
		for _, c := range []float64{500, 1000, 4000} {
			usage, context = append(usage, u), append(context, c)
			itl = append(itl, 4+1e-4*u*100_000+0.05*math.Max(1, u*100_000/c))
		}
	}
	asNPZ, asJSON := t.TempDir(), t.TempDir()
	write(t, asNPZ, prefillPoints.npz, packNPZ(map[string][]byte{"prefill_isl": npy("<i8", isl), "prefill_ttft": npy("<f8", ttft)}))
	write(t, asNPZ, decodePoints.npz, packNPZ(map[string][]byte{"x_kv_usage": npy("<f8", usage), "y_context_length": npy("<f8", context),
		"z_itl": npy("<f8", itl), "max_kv_tokens": npy("<i8", []float64{100_000})}))
	list := func(v []float64) string { return strings.ReplaceAll(fmt.Sprint(v), " ", ",") }
	write(t, asJSON, prefillPoints.json, fmt.Sprintf(`{"prefill_isl":%s,"prefill_ttft":%s,"note":"x"}`, list(isl), list(ttft)))
	write(t, asJSON, decodePoints.json, fmt.Sprintf(`{"x_kv_usage":%s,"y_context_length":%s,"z_itl":%s,"max_kv_tokens":100000}`,
		list(usage), list(context), list(itl)))
	for _, dir := range []string{asNPZ, asJSON, filepath.Join(asJSON, decodePoints.json)} {
		p, err := FitProfileFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.PrefillMs(1, 1600, 0), 5+0.01*1600+1e-6*(1600*1600/2+800); math.Abs(got-want) > 0.01*want {
			t.Errorf("prefill of 1600: %v ms, want about %v", got, want)
		}
		if got, want := p.DecodeMs(30, 30_000, 0), 4+3+0.05*30; math.Abs(got-want) > 0.02*want {
			t.Errorf("decode of 30 at 1000: %v ms, want about %v", got, want)
		}
	}
}

func TestProfilerFolderFaults(t *testing.T) {
	dir := t.TempDir()
	if _, err := FitProfileFolder(dir); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("empty folder: %v", err)
	}
	write(t, dir, prefillPoints.json, `{"prefill_isl":[1,2],"prefill_ttft":[1,2]}`)
	write(t, dir, decodePoints.json, `{"x_kv_usage":[0.5],"y_context_length":[100],"z_itl":[1]}`)
	if _, err := FitProfileFolder(dir); err == nil || !strings.Contains(err.Error(), "max_kv_tokens: missing") {
		t.Errorf("missing array: %v", err)
	}
	write(t, dir, decodePoints.json, `{"x_kv_usage":[0.5],"y_context_length":[100],"z_itl":[1],"max_kv_tokens":[1000]}`)
	if _, err := FitProfileFolder(dir); !errors.Is(err, errFlat) {
		t.Errorf("two points: %v", err)
	}
	if _, err := FitProfileFolder(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there was read")
	}
	write(t, dir, prefillPoints.npz, "not a zip")
	if _, err := FitProfileFolder(dir); err == nil {
		t.Error("a broken npz was passed over")
	}
}

// linearTimes is hardware timing for a bootstrap.
type linearTimes struct{ fail error }

func (l linearTimes) PrefillMs(batch, isl int) (float64, error) {
	return 2 + 0.01*float64(batch*isl), l.fail
}

func (l linearTimes) DecodeMs(batch, context int) (float64, error) {
	return 5 + 0.1*float64(batch) + 1e-5*float64(batch*context), l.fail
}

func TestBootstrapTeachesTheModelBeforeTheFirstTick(t *testing.T) {
	build := func(timing PassTimes) *Policy {
		cfg := mustParse(t, `{"mode":"disagg","optimization_target":"sla"}`)
		e := Engine{GPUs: 1, MaxBatchedTokens: 4096, MaxSeqs: 32, KVTokens: 65536}
		p, err := New(cfg, Engines{Disaggregated: true, Prefill: e, Decode: e, PrefillTiming: timing, DecodeTiming: timing})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := build(linearTimes{})
	b := p.Bootstrap()
	// Prompts of 100, 100 + 499, ... 4092; batches 1, 5, ... 29 while they fit.
	if b.Status != BootInstalled || *b.PrefillFPMs != 9 || *b.DecodeFPMs != 8+8+4+2 || b.Digest == "" {
		t.Errorf("%+v, %d prefill, %d decode", b, *b.PrefillFPMs, *b.DecodeFPMs)
	}
	if ms, ok := p.models.decode.estimate(work{d: 10, kv: 10_000}); !ok || math.Abs(ms-6.1) > 1e-6 {
		t.Errorf("decode of 10 at 1000: %v %v, want 6.1", ms, ok)
	}
	if got := build(linearTimes{errors.New("no data")}).Bootstrap().Status; got != BootFailed {
		t.Errorf("failing model: %s", got)
	}
	if got := build(nil).Bootstrap().Status; got != BootNotConfigured {
		t.Errorf("no hardware timing: %s", got)
	}
}
