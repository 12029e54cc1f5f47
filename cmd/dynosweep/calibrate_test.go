package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func calibrateWith(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(context.Background(), &out, &errs, append([]string{"dynosweep", "calibrate", filepath.Join(dir, "d.yaml"),
		"--out", filepath.Join(dir, "out")}, args...))
	if err != nil {
		errs.WriteString(err.Error())
	}
	return exitCode(err), out.String(), errs.String()
}

// Fixed timing of 8 and 2 ms against an engine that takes twice as long.
func TestCalibrateWritesABlockThatASweepTakes(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	engine := "engine: {backend: vllm, num_gpu_blocks: 9999}\ntopology: {mode: aggregated, workers: 1}\n"
	put("d.yaml", engine+"timing: {type: fixed, prefill_ms: 8, decode_ms: 2}\n")
	good := put("good.csv", "isl,osl,concurrency,mean_ttft_ms,mean_tpot_ms\n100,50,1,16,4\n200,50,1,16,4\n400,50,1,16,4\n")
	code, stdout, stderr := calibrateWith(t, dir, "--measured", good, "--assert", "loo_tpot_mape<5")
	if code != exitGood || !strings.Contains(stdout, "prefill_scale") {
		t.Fatalf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	block, err := os.ReadFile(filepath.Join(dir, "out", "timing.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	spec := put("sweep.yaml", engine+"workload: {synthetic: {input_tokens: 100, output_tokens: 50, request_count: 9}, concurrency: 1}\n"+string(block))
	var out, errs bytes.Buffer
	if err := run(context.Background(), &out, &errs, []string{"dynosweep", "sweep", spec, "--dry-run"}); err != nil {
		t.Fatalf("%v\n%s", err, block)
	}
	if code, _, _ := calibrateWith(t, dir, "--measured", good, "--assert", "loo_tpot_mape<0.0001"); code != exitFailed {
		t.Errorf("a broken assertion has exit code %d", code)
	}
	put("d.yaml", engine+"timing: {type: fixed, prefill_ms: 16, decode_ms: 4}\n")
	if code, _, stderr := calibrateWith(t, dir, "--measured", good); code != exitFailed || !strings.Contains(stderr, "no corrections were written") {
		t.Errorf("without gain the exit code is %d: %s", code, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "timing.yaml")); err == nil {
		t.Error("without gain an old block stays")
	}
	fast := put("fast.csv", "isl,osl,concurrency,mean_ttft_ms,mean_tpot_ms\n100,50,1,16,1\n")
	if code, _, stderr := calibrateWith(t, dir, "--measured", fast); code != exitBadInput || !strings.Contains(stderr, "speculat") {
		t.Errorf("a refused run has exit code %d: %s", code, stderr)
	}
}
