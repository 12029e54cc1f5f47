package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/dynosweep/dynosweep/sim/workload"
	"github.com/dynosweep/dynosweep/sim/workload/workloadtest"
)

func TestUnsortedSinglesAreSortedByTime(t *testing.T) { // W6
	tr := load(t, `
{"timestamp":1000,"input_length":1500,"output_length":4,"hash_ids":[10,11,12]}
{"timestamp":1200.5,"input_length":1536,"output_length":2,"hash_ids":[10,11,13]}
{"timestamp":1100,"input_length":600,"output_length":1,"hash_ids":[10,11]}
`, mooncake(512))
	all := workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(5))
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 200.5, 100)
	if a, b := workloadtest.SharedBlocks(all[0], all[2]), workloadtest.SharedBlocks(all[0], all[1]); a != 9 || b != 16 {
		t.Errorf("rows 3 and 2 share %d and %d blocks with row 1, want 9 and 16", a, b)
	}
	if all[0].HasSession {
		t.Error("single turns in open loop show sessions")
	}
	fast := open(64)
	fast.Speedup = 10
	workloadtest.WantFloats(t, "arrivals x10", workloadtest.Arrivals(workloadtest.Serve(t, source(t, tr, fast), 64, workloadtest.Constant(5))), 0, 20.05, 10)
	if tr.Requests() != 3 || tr.Sessions() != 3 || tr.InputTokens() != 3636 || tr.OutputTokens() != 7 || tr.Agentic() {
		t.Error("totals:", tr.Requests(), tr.Sessions(), tr.InputTokens(), tr.OutputTokens())
	}
}

const sessionRows = `
{"session_id":"a","timestamp":100,"input_length":512,"output_length":3,"hash_ids":[1]}
{"session_id":"b","timestamp":150,"input_length":512,"output_length":3,"hash_ids":[9]}
{"session_id":"a","timestamp":300,"input_length":1024,"output_length":3,"hash_ids":[1,2]}
{"session_id":"a","delay":7.5,"input_length":1536,"output_length":3,"hash_ids":[1,2,3]}
{"session_id":"a","input_length":1600,"output_length":3,"hash_ids":[1,2,3,4]}
`

func TestSessionsInOpenAndClosedLoop(t *testing.T) { // W7
	tr := load(t, sessionRows, mooncake(512))
	all := workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(12))
	workloadtest.WantFloats(t, "open", workloadtest.Arrivals(all), 0, 212, 231.5, 243.5, 50)
	for i, want := range []int{8, 16, 24} {
		if got := workloadtest.SharedBlocks(all[i], all[i+1]); got != want {
			t.Errorf("turns %d and %d share %d blocks, want %d", i, i+1, got, want)
		}
	}
	if all[4].Session != "b" || all[2].Turn != 2 || !all[0].HasSession {
		t.Error("sessions:", all[4].Session, all[2].Turn, all[0].HasSession)
	}
	fast := open(64)
	fast.Speedup = 2
	workloadtest.WantFloats(t, "x2", workloadtest.Arrivals(workloadtest.Serve(t, source(t, tr, fast), 64, workloadtest.Constant(12))), 0, 112, 127.75, 139.75, 25)
	workloadtest.WantFloats(t, "one at a time", workloadtest.Arrivals(workloadtest.Serve(t, source(t, tr, closed(64, 1)), 64, workloadtest.Constant(12))), 0, 212, 231.5, 243.5, 255.5)
}

func TestClosedLoopIgnoresTimestamps(t *testing.T) { // W8
	text := ""
	for i := range 4 {
		text += fmt.Sprintf(`{"timestamp":%d,"input_length":%d,"output_length":%d,"hash_ids":[%d]}`+"\n", 5000-1000*i, 64*(i+1), 3+i, i)
	}
	tr := load(t, text, mooncake(512))
	end := []float64{12, 23, 37, 39}
	all := workloadtest.Serve(t, source(t, tr, closed(64, 2)), 64, func(r *workloadtest.Served) float64 { return end[r.Ordinal] - r.ArrivalMs })
	workloadtest.WantFloats(t, "closed", workloadtest.Arrivals(all), 0, 0, 12, 23)
	if all[1].Session != "request_2" || !all[1].HasSession {
		t.Errorf("closed loop shows session %q", all[1].Session)
	}
	workloadtest.WantFloats(t, "open", workloadtest.Arrivals(workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(1))), 3000, 2000, 1000, 0)
}

// Shared tokens found at every pair of trace and engine block sizes (W10), against
// token lists compared one by one.
func TestBlockIdentityIsPrefixEquality(t *testing.T) {
	rows := [][]uint64{{1, 2, 3}, {1, 2, 4}, {1, 2, 3}, {1, 2}, {7, 7}, {7, 7, 8}, {8, 7, 7}, {1}, {1, 2, 3, 4, 5, 6, 7}}
	length := []int{250, 250, 201, 200, 200, 300, 300, 77, 650}
	text := ""
	for i, ids := range rows {
		text += fmt.Sprintf(`{"timestamp":%d,"input_length":%d,"output_length":1,"hash_ids":%s}`+"\n", i*100, length[i],
			bytes.ReplaceAll(fmt.Append(nil, ids), []byte(" "), []byte(",")))
	}
	tr := load(t, text, mooncake(100))
	for _, blockSize := range []int{1, 3, 10, 48, 64, 99, 100, 101, 128, 150, 200, 512} {
		all := workloadtest.Serve(t, source(t, tr, open(blockSize)), blockSize, workloadtest.Constant(1))
		for i := range all {
			for j := range i {
				same := 0
				for same < length[i] && same < length[j] && rows[i][same/100] == rows[j][same/100] {
					same++
				}
				if got, want := workloadtest.SharedBlocks(all[i], all[j]), same/blockSize; got != want {
					t.Errorf("block size %d, rows %d and %d share %d blocks, want %d", blockSize, j+1, i+1, got, want)
				}
				for a := range all[i].Blocks[min(same/blockSize, len(all[i].Blocks)):] {
					for _, b := range all[j].Blocks {
						if all[i].Blocks[same/blockSize+a] == b {
							t.Errorf("block size %d, rows %d and %d: different prefixes, one id", blockSize, j+1, i+1)
						}
					}
				}
			}
		}
	}
}

const deltaRows = `
{"session_id":"s","timestamp":0,"input_length":128,"output_length":4,"hash_ids":[1]}
{"session_id":"s","timestamp":50,"input_length":64,"output_length":4,"hash_ids":[2]}
{"session_id":"s","delay":5,"input_length":60,"output_length":4,"hash_ids":[3]}
{"session_id":"u","timestamp":1,"input_length":128,"output_length":4,"hash_ids":[1]}
`

func TestDeltaPromptsGrow(t *testing.T) { // W12
	tr := load(t, deltaRows, LoadOptions{Format: MooncakeDelta, BlockSize: 512})
	end := []float64{23, 86, 104, 24}
	all := workloadtest.Serve(t, source(t, tr, open(64)), 64, func(r *workloadtest.Served) float64 { return end[r.Ordinal] - r.ArrivalMs })
	workloadtest.WantFloats(t, "arrivals", workloadtest.Arrivals(all), 0, 73, 91, 1)
	for i, want := range []int32{128, 196, 260, 128} {
		if all[i].PromptTokens != want {
			t.Errorf("prompt %d has %d tokens, want %d", i, all[i].PromptTokens, want)
		}
	}
	if a, b, c := workloadtest.SharedBlocks(all[0], all[3]), workloadtest.SharedBlocks(all[0], all[1]), workloadtest.SharedBlocks(all[1], all[2]); a != 2 || b != 2 || c != 3 {
		t.Errorf("shared %d %d %d, want 2 2 3", a, b, c)
	}
	// Blocks that a turn generates into are those that the next turn asks for.
	if got := all[0].Prompt.Block(2); got != all[1].Blocks[2] {
		t.Error("generated block has another id in the next turn")
	}
	if all[3].Prompt.Block(2) == all[0].Prompt.Block(2) {
		t.Error("two sessions share a generated block")
	}
	end = []float64{13, 76, 94, 107}
	all = workloadtest.Serve(t, source(t, tr, closed(64, 1)), 64, func(r *workloadtest.Served) float64 { return end[r.Ordinal] - r.ArrivalMs })
	workloadtest.WantFloats(t, "closed", workloadtest.Arrivals(all), 0, 63, 81, 94)
}

func TestDeltaSharesUntilTheFirstDrawnToken(t *testing.T) {
	row := func(session string, output int, authored string) string {
		return fmt.Sprintf(`{"session_id":%q,"timestamp":0,"input_length":40,"output_length":%d%s,"hash_ids":[1,2]}`+"\n", session, output, authored) +
			fmt.Sprintf(`{"session_id":%q,"input_length":100,"output_length":1,"hash_ids":[3,4,5,6,7]}`+"\n", session)
	}
	for _, c := range []struct {
		name             string
		output           int
		authored         string
		how              workload.Outcome
		tokens, together int
	}{
		{"no output", 0, "", workload.Completed, 140, 17},
		{"drawn output", 2, "", workload.Completed, 142, 5},
		{"authored output", 2, `,"output_token_ids":[70000,70001]`, workload.Completed, 142, 17},
		{"rejected", 2, "", workload.Rejected, 140, 17},
	} {
		tr := load(t, row("x", c.output, c.authored)+row("y", c.output, c.authored), LoadOptions{Format: MooncakeDelta, BlockSize: 20})
		all := workloadtest.ServeWith(t, source(t, tr, open(8)), 8, workloadtest.Constant(1), func(r *workloadtest.Served) workload.Outcome {
			if r.Turn == 0 {
				return c.how
			}
			return workload.Completed
		})
		if got := workloadtest.SharedBlocks(all[1], all[3]); got != c.together || all[1].PromptTokens != int32(c.tokens) {
			t.Errorf("%s: second turns of %d tokens share %d blocks, want %d and %d", c.name, all[1].PromptTokens, got, c.tokens, c.together)
		}
	}
}

func TestDeltaOfSingleTurnsIsMooncake(t *testing.T) {
	text := `{"timestamp":0,"input_length":128,"output_length":4,"hash_ids":[1,2]}
{"timestamp":1,"input_length":128,"output_length":4,"hash_ids":[2,2]}
{"timestamp":1,"input_length":128,"output_length":4,"hash_ids":[1,3]}`
	all := workloadtest.Serve(t, source(t, load(t, text, LoadOptions{Format: MooncakeDelta, BlockSize: 64}), open(64)), 64, workloadtest.Constant(1))
	if all[0].Blocks[1] == all[1].Blocks[1] || workloadtest.SharedBlocks(all[0], all[2]) != 1 || all[0].HasSession {
		t.Error("blocks are not chained, or sessions are shown")
	}
}

func TestMadeUpSessionIDsCanBeJoined(t *testing.T) {
	for _, text := range []string{
		`{"session_id":"request_2","timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1]}
{"timestamp":5,"input_length":1,"output_length":1,"hash_ids":[1]}`,
		`
	
{"timestamp":5,"input_length":1,"output_length":1,"hash_ids":[1]}
{"session_id":"request_2","input_length":1,"output_length":1,"hash_ids":[1]}`,
	} {
		if tr := load(t, text, mooncake(512)); tr.Sessions() != 1 || tr.Requests() != 2 {
			t.Errorf("%d sessions, %d requests", tr.Sessions(), tr.Requests())
		}
	}
}

func TestGzipReadsTheSame(t *testing.T) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write([]byte(sessionRows))
	w.Close()
	path := filepath.Join(t.TempDir(), "trace.jsonl.gz")
	if err := os.WriteFile(path, z.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := Load([]string{path}, mooncake(512))
	if err != nil || tr.Requests() != 5 || len(tr.Digest()) != 64 {
		t.Fatal(err, tr)
	}
}

func TestRowsCarryRouterFields(t *testing.T) {
	tr := load(t, `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1],"priority":-3,"strict_priority":7,"policy_class":"a\u00e9","request_id":"x"}
{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[18446744073709551615],"priority":null}`, mooncake(512))
	all := workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(1))
	if r := all[0]; r.Priority != -3 || r.StrictPriority != 7 || r.PolicyClass != "aé" {
		t.Errorf("%+v", r.Request)
	}
	if r := all[1]; r.Priority != 0 || r.PolicyClass != "" {
		t.Errorf("%+v", r.Request)
	}
	// Numbers that look alike when written one after the other.
	tr = load(t, `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1],"priority":1,"strict_priority":13}
{"timestamp":1,"input_length":1,"output_length":1,"hash_ids":[1],"priority":1,"strict_priority":1,"policy_class":"3"}`, mooncake(512))
	if all = workloadtest.Serve(t, source(t, tr, open(64)), 64, workloadtest.Constant(1)); all[1].StrictPriority != 1 || all[1].PolicyClass != "3" {
		t.Errorf("%+v", all[1].Request)
	}
}

// The reference drops digits beyond 64 bits and divides once by a power of ten.
func TestTimestampsReadAsTheReferenceDoes(t *testing.T) {
	for _, row := range []struct {
		text string
		want float64
	}{
		{"14.333333333333334", 14.333333333333334},
		{"969.7536124796243", 969.7536124796244},
		{"700.7151973425684", 700.7151973425684},
		{"1097.8496977196893123456", 1097.8496977196892},
		{"9007199254740993.0", 9007199254740994},
		{"-1.5e3", -1500}, {"1e-400", 0}, {"0e999999999999", 0}, {"5e-324", 5e-324},
		{"123456789012345678901234567890", 123456789012345678901234567890.},
	} {
		var s scanner
		s.reset([]byte(row.text))
		if got := s.float(); s.end() != nil || got != row.want {
			t.Errorf("%s reads as %v (%v), want %v", row.text, got, s.err, row.want)
		}
	}
	for _, text := range []string{"1e309", "1e99999999999999999999", "-", "01", "1.", ".5", "1e", "+1", "NaN", "0x1"} {
		var s scanner
		s.reset([]byte(text))
		if s.float(); s.end() == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// BenchmarkLoad reads a trace of the shape of the FAST'25 conversation trace:
// 12,031 rows, 24 ids each, 3 MB.
func BenchmarkLoad(b *testing.B) {
	var text bytes.Buffer
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 12031 {
		n, fresh := 1+r.IntN(47), r.IntN(200000)
		fmt.Fprintf(&text, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0`, i*294, n*512-100, 1+r.IntN(700))
		for k := range n - 1 {
			fmt.Fprintf(&text, ", %d", fresh+k)
		}
		text.WriteString("]}\n")
	}
	path := write(b, "trace.jsonl", text.String())
	b.ReportAllocs()
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, err := Load([]string{path}, mooncake(512)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(12031*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
