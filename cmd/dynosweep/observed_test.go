package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// observed is what the reference told of one run beside its summary.
type observed struct {
	Args             []string
	Samples, Records []map[string]any
}

// TestTelemetryAndRecordsEqualReference compares every field of every telemetry
// sample and per-request record with a recording, which names its origin. Our own
// counters per rank stand beside the reference's, and uuids are random there.
func TestTelemetryAndRecordsEqualReference(t *testing.T) {
	files, err := filepath.Glob("testdata/observed/*.json.gz")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d recordings: %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".json.gz"), func(t *testing.T) {
			t.Parallel()
			var want observed
			if err := json.Unmarshal(unzip(t, f), &want); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			args := []string{"dynosweep", "replay", "--report-json", filepath.Join(dir, "report.json"),
				"--telemetry-jsonl", filepath.Join(dir, "t"), "--report-jsonl", filepath.Join(dir, "r")}
			for _, a := range want.Args {
				args = append(args, local(t, a))
			}
			if err := run(context.Background(), io.Discard, io.Discard, args); err != nil {
				t.Fatal(err)
			}
			samples, records := jsonLines(t, filepath.Join(dir, "t")), jsonLines(t, filepath.Join(dir, "r"))
			for _, r := range records {
				delete(r, "uuid")
			}
			inOrder(records)
			inOrder(want.Records)
			if len(samples) != len(want.Samples) || len(records) != len(want.Records) {
				t.Fatalf("%d samples and %d records, reference %d and %d", len(samples), len(records), len(want.Samples), len(want.Records))
			}
			for i, s := range want.Samples {
				if d := unlike(samples[i], s, fmt.Sprintf("sample %d", i), true); d != "" {
					t.Error(d)
				}
			}
			for i, r := range want.Records {
				if d := unlike(records[i], r, fmt.Sprintf("record %d", i), false); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func jsonLines(t *testing.T, path string) (out []map[string]any) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		row := map[string]any{}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	return out
}

// inOrder sorts records of equal arrival, whose order is random in the reference.
func inOrder(rows []map[string]any) {
	slices.SortStableFunc(rows, func(a, b map[string]any) int {
		key := func(r map[string]any) string {
			return fmt.Sprint(r["request_id"], r["arrival_time_ms"], r["first_admit_ms"], r["last_token_ms"], r["terminal_time_ms"], r["prefill_worker_idx"], r["decode_worker_idx"], r["reused_input_tokens"])
		}
		return strings.Compare(key(a), key(b))
	})
}

// unlike names the first place at which have differs from want, "" if none does.
// more allows members of objects that want lacks.
func unlike(have, want any, path string, more bool) string {
	switch w := want.(type) {
	case map[string]any:
		h, _ := have.(map[string]any)
		if !more && len(h) != len(w) {
			return fmt.Sprintf("%s has %v, reference %v", path, slices.Sorted(maps.Keys(h)), slices.Sorted(maps.Keys(w)))
		}
		for _, k := range slices.Sorted(maps.Keys(w)) {
			v, ok := h[k]
			if !ok {
				return fmt.Sprintf("%s: no %s", path, k)
			}
			if d := unlike(v, w[k], path+"."+k, more); d != "" {
				return d
			}
		}
		return ""
	case []any:
		h, _ := have.([]any)
		if len(h) != len(w) {
			return fmt.Sprintf("%s has %d entries, reference %d", path, len(h), len(w))
		}
		for i := range w {
			if d := unlike(h[i], w[i], fmt.Sprintf("%s[%d]", path, i), more); d != "" {
				return d
			}
		}
		return ""
	case float64:
		if h, ok := have.(float64); ok && math.Abs(h-w) <= 1e-9*max(1, math.Abs(w)) {
			return ""
		}
	default:
		if reflect.DeepEqual(have, want) {
			return ""
		}
	}
	return fmt.Sprintf("%s is %v, reference %v", path, have, want)
}
