package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/workloadtest"
)

// readable loads text as a format and, if that works, replays it. It must not
// panic, every refusal must name the file, and every request must be released once.
func readable(t *testing.T, path string, text []byte, o LoadOptions) {
	if len(text) > 4096 {
		return
	}
	o.content = ptr(string(text))
	tr, err := Load([]string{path}, o)
	if err == nil {
		d := open(32)
		if tr.format == AppliedCompute {
			d = closed(32, 2)
		}
		var src workload.Source
		if src, err = tr.NewSource(d); err == nil {
			if all := workloadtest.Serve(t, src, 32, workloadtest.Constant(1)); len(all) != tr.Requests() {
				t.Errorf("%d requests released of %d", len(all), tr.Requests())
			}
			return
		}
		if _, ok := err.(*InputError); !ok {
			return // a matter of the options, such as blocks too small
		}
	}
	var at *InputError
	if !errors.As(err, &at) || !strings.HasPrefix(err.Error(), path) {
		t.Errorf("a refusal without a place: %v", err)
	}
}

func ptr(s string) *string { return &s }

func FuzzMooncake(f *testing.F) {
	const path = "trace.jsonl"
	f.Add([]byte(sessionRows))
	f.Add([]byte(`{"created_time":-1.5e3,"input_tokens":3,"output_tokens":2,"hash_ids":[18446744073709551615],"output_token_ids":[1,4294967295],"priority":-1,"policy_class":"\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, text []byte) { readable(t, path, text, mooncake(48)) })
}

func FuzzMooncakeDelta(f *testing.F) {
	const path = "trace.jsonl"
	f.Add([]byte(deltaRows))
	f.Add([]byte(`{"session_id":"s","timestamp":0,"input_length":20,"output_length":1,"output_token_ids":[7],"hash_ids":[1]}` + "\n" +
		`{"session_id":"s","input_length":90,"output_length":0,"hash_ids":[1,1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		readable(t, path, text, LoadOptions{Format: MooncakeDelta, BlockSize: 48})
	})
}

func FuzzAgentic(f *testing.F) {
	const path = "trace.jsonl"
	f.Add([]byte(threePlays(func(int) string { return `,"source_play_ordinal":0` })))
	f.Add([]byte(header64 + node("a", "p", 1, "") + node("b", "p", 0, deps(dep("a", "dispatch", .5, "spawn")))))
	f.Add([]byte(`{"request_id":"a","wait_for":["b"],"input_length":1,"output_length":1,"hash_ids":[1]}` + "\n" + `{"request_id":"b","delay_ms":1,"input_length":1,"output_length":1,"hash_ids":[1]}`))
	f.Fuzz(func(t *testing.T, text []byte) { readable(t, path, text, agentic()) })
}

func FuzzApplied(f *testing.F) {
	const path = "trace.jsonl"
	f.Add([]byte(appliedA + appliedB))
	f.Fuzz(func(t *testing.T, text []byte) {
		readable(t, path, text, LoadOptions{Format: AppliedCompute, BlockSize: 64, SharedPrefixRatio: .5, PrefixGroups: 2})
	})
}

func FuzzDynamo(f *testing.F) {
	const path = "trace.jsonl"
	context := `,"agent_context":{"session_id":"s","parent_session_id":null}`
	f.Add([]byte(dynamoRow("a", 1, 2, 64, "1", "") + dynamoRow("b", 2, 2, 64, "1", "")))
	f.Add([]byte(dynamoRow("a", 1, 2, 64, "1", context) + dynamoRow("b", 9, 2, 64, "1", context) +
		`{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1,"agent_context":{"session_id":"s"},"tool":{"tool_call_id":"t","tool_class":"c","claude":{"source_request_id":"a","execution_mode":"blocking"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) { readable(t, path, text, LoadOptions{Format: Dynamo}) })
}

func FuzzWeka(f *testing.F) {
	const path = "trace.jsonl"
	f.Add([]byte(`{"id":"t","models":["m"],"block_size":64,"hash_id_scope":"local","requests":[{"type":"n","t":0,"model":"m","in":70,"out":1,"hash_ids":[1,2]},` +
		`{"type":"subagent","t":1,"agent_id":"a","subagent_type":"x","status":"completed","duration_ms":5,"requests":[{"type":"s","t":0.5,"model":"m","in":1,"out":1}]},` +
		`{"type":"n","t":2,"api_time":0.5,"model":"m","in":130,"out":1,"hash_ids":[1,3]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) { readable(t, path, text, LoadOptions{Format: Weka}) })
}

func FuzzTables(f *testing.F) {
	const path = "trace.jsonl"
	f.Add([]byte(azureTable), true)
	f.Add([]byte(burstTable), false)
	f.Fuzz(func(t *testing.T, text []byte, azure bool) {
		if len(text) > 4096 {
			return
		}
		o := LoadOptions{Format: burstCSV, BlockSize: 1 << 20}
		if azure {
			o.Format = azureCSV
		}
		o.content = ptr(string(text))
		var out strings.Builder
		_, err := Convert(&out, []string{path}, o, DefaultConversion(Mooncake))
		if err != nil {
			if !strings.HasPrefix(err.Error(), path) {
				t.Errorf("a refusal without a place: %v", err)
			}
			return
		}
		if out.Len() > 0 {
			back := mooncake(1 << 20)
			back.content = ptr(out.String())
			if _, err := Load([]string{path}, back); err != nil {
				t.Error(err)
			}
		}
	})
}

// Whatever the scanner takes is JSON, and the other way round, but for numbers out
// of range.
func FuzzScanner(f *testing.F) {
	for _, text := range []string{`{"a":[1,-2.5e3,{"b":null}],"c":"\u00e9\n"}`, `[]`, `{}`, `"\ud800"`, `[1,]`, `01`, ` tru`, `1e999`, "\"\x01\""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			return
		}
		var s scanner
		s.reset(text)
		s.skip()
		err := s.end()
		if got, want := err == nil, json.Valid(text); got != want && !errors.Is(err, errRange) {
			t.Errorf("%q: %v, valid JSON: %v", text, err, want)
		}
	})
}

// FuzzGzip: whatever bytes a .gz has, its rows are read or refused with a place.
func FuzzGzip(f *testing.F) {
	const path = "trace.jsonl.gz"
	f.Add(gzipped(f, sessionRows))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, packed []byte) { readable(t, path, packed, mooncake(48)) })
}

func gzipped(tb testing.TB, text string) []byte {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.WriteString(z, text); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// A small .gz may hold one line of any length: it is refused, by line and reason, before
// it is all unpacked.
func TestALineIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("unpacks 128 MiB")
	}
	dir := t.TempDir()
	long := strings.Repeat(" ", maxLine+2<<20)
	for _, c := range []struct {
		name, text string
		read       func(path string) error
	}{
		{"rows.jsonl.gz", sessionRows + long + "\n", func(path string) error { _, err := Load([]string{path}, mooncake(512)); return err }},
		{"table.csv.gz", burstTable + "\"" + long + "\"\n", func(path string) error {
			_, err := Convert(io.Discard, []string{path}, LoadOptions{Format: burstCSV, BlockSize: 64}, DefaultConversion(Mooncake))
			return err
		}},
	} {
		path := filepath.Join(dir, c.name)
		if err := os.WriteFile(path, gzipped(t, c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.read(path); err == nil || !strings.HasPrefix(err.Error(), path+":") || !strings.Contains(err.Error(), "a line of more than 128 MiB") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
