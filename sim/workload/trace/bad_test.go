package trace

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// moon is a good mooncake row with a replacement made in it.
func moon(old, new string) string {
	return strings.Replace(`{"timestamp":0,"input_length":64,"output_length":2,"hash_ids":[1]}`, old, new, 1) + "\n"
}

// The table of spec workload 4. PATH stands for the file. line is where the fault
// is shown to lie, 0 for the file as a whole, -1 for a fault of the options.
func TestBadInputs(t *testing.T) {
	parse := func(n string) string { return "failed to parse line " + n + " from PATH as JSON" }
	request := func(n string) string {
		return "failed to parse line " + n + " from PATH as an agentic Mooncake v2 request"
	}
	const header = "failed to parse line 1 from PATH as the agentic Mooncake v2 header"
	a := node("a", "p", 0, "")
	b := func(more string) string { return node("b", "p", 0, more) }
	row := func(old, new string) string { return strings.Replace(a, old, new, 1) }
	dyn := func(old, new string) string {
		return strings.Replace(dynamoRow("a", 100, 50, 64, "1", ""), old, new, 1)
	}
	ctx := func(s string) string { return `,"agent_context":` + s }
	s1 := ctx(`{"session_id":"s1"}`)
	tool := func(old, new string) string {
		return strings.Replace(`{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1,"agent_context":{"session_id":"p"},`+
			`"tool":{"tool_call_id":"t1","tool_class":"agent","claude":{"source_request_id":"p1","child_session_id":"c","execution_mode":"blocking"}}}`+"\n", old, new, 1)
	}
	family := dynamoRow("p1", 100, 10, 64, "1", ctx(`{"session_id":"p"}`)) + dynamoRow("c1", 120, 10, 64, "2", ctx(`{"session_id":"c","parent_session_id":"p"}`)) +
		dynamoRow("q1", 130, 10, 64, "2", ctx(`{"session_id":"q"}`))
	explicit := func(of, trigger, relation string) string {
		return strings.Replace(family, `"input_sequence_hashes":[1]`, `"input_sequence_hashes":[1],"dependencies":[{"request_id":"`+of+`","trigger":"`+trigger+`","relation":"`+relation+`"}]`, 1)
	}
	weka := func(old, new string) string {
		return strings.Replace(`{"id":"t","block_size":64,"hash_id_scope":"local","requests":[{"type":"n","t":0,"model":"m","in":64,"out":1,"hash_ids":[1]}]}`, old, new, 1)
	}
	tests := []struct {
		format Format
		text   string
		line   int
		want   string
	}{
		{Mooncake, "", 0, "trace file PATH did not contain any requests"},
		{Mooncake, "\n \t\n", 0, "trace file PATH did not contain any requests"},
		{Mooncake, "{]", 1, parse("1")},
		{Mooncake, "\n\n[1]", 3, parse("3")},
		{Mooncake, moon("64", "100.0"), 1, parse("1")},
		{Mooncake, moon("64", "-0"), 1, parse("1")},
		{Mooncake, moon("64", "064"), 1, parse("1")},
		{Mooncake, moon("[1]", "[1.5]"), 1, parse("1")},
		{Mooncake, moon("[1]", "[-1]"), 1, parse("1")},
		{Mooncake, moon("[1]", "[18446744073709551616]"), 1, parse("1")},
		{Mooncake, moon("[1]", "[1,]"), 1, parse("1")},
		{Mooncake, moon("0", `"0"`), 1, parse("1")},
		{Mooncake, moon("0", "NaN"), 1, parse("1")},
		{Mooncake, moon("0", "1e999"), 1, parse("1")},
		{Mooncake, moon("{", `{"strict_priority":-1,`), 1, parse("1")},
		{Mooncake, moon("{", `{"priority":1.0,`), 1, parse("1")},
		{Mooncake, moon("{", `{"priority":2147483648,`), 1, parse("1")},
		{Mooncake, moon("{", `{"policy_class":"\ud800",`), 1, parse("1")},
		{Mooncake, moon("{", `{"created_time":null,`), 1, parse("1")},
		{Mooncake, moon("{", `{"timestamp":0,`), 1, parse("1")},
		{Mooncake, "\ufeff" + moon("", ""), 1, parse("1")},
		{Mooncake, moon("", "") + moon("", "") + "x", 3, parse("3")},
		{Mooncake, moon("{", "{\"a\":\"\xff\","), 1, "failed to read line 1 from PATH"},
		{Mooncake, moon(`,"hash_ids":[1]`, ""), 1, "trace line 1 is missing hash_ids"},
		{Mooncake, moon("[1]", "null"), 1, "trace line 1 is missing hash_ids"},
		{Mooncake, moon("[1]", "[]"), 1, "trace line 1 input_length 64 exceeds hash_ids capacity 0"},
		{Mooncake, moon("64", "65"), 1, "trace line 1 input_length 65 exceeds hash_ids capacity 64"},
		{Mooncake, moon("64", "0"), 1, "session request_1 turn 0 must have a positive input_length"},
		{Mooncake, moon(`"output_length":2,`, ""), 1, "trace line 1 is missing output_length"},
		{Mooncake, moon("{", `{"output_token_ids":[1,2,3],`), 1, "trace line 1 output_length 2 does not match output_token_ids length 3"},
		{Mooncake, moon(`:2`, `:2147483648`), 1, "trace line 1 has a length of 2147483648 tokens; at most 2147483647 can be replayed"},
		{Mooncake, moon("{", `{"session_id":"a","delay":5,`), 1, "trace line 1 sets delay on the first turn of session a"},
		{Mooncake, moon("{", `{"session_id":"a",`) + moon("{", `{"session_id":"a","delay":-5,`), 2, "trace line 2 has invalid delay -5"},
		{Mooncake, moon("0", `5,"session_id":"a"`) + moon("0", `0,"session_id":"a"`), 2, "trace line 2 has invalid delay -5"},
		{Mooncake, moon(`"timestamp":0`, `"session_id":"a"`) + moon("{", `{"session_id":"a",`), 2, "trace line 2 for session a cannot infer delay without a previous timestamp"},
		{Mooncake, moon("", "") + moon(`"timestamp":0,`, ""), 2, "trace mode requires first_arrival_timestamp_ms for session request_2"},
		{Mooncake, moon("0", "-1.7e308") + moon("0", "1.7e308"), 2, "session request_2 has invalid first_arrival_timestamp_ms inf"},

		{AgenticMooncake, "", 0, "agentic trace file PATH is missing its v2 header"},
		{AgenticMooncake, header64, 0, "agentic trace file PATH did not contain any requests"},
		{AgenticMooncake, strings.Replace(header64, ":2", ":1", 1), 1, "unsupported agentic Mooncake version 1; expected 2"},
		{AgenticMooncake, strings.Replace(header64, "dynamo.agentic_mooncake", "x", 1), 1, `unsupported agentic Mooncake schema "x"; expected "dynamo.agentic_mooncake"`},
		{AgenticMooncake, strings.Replace(header64, ":64", ":0", 1), 1, "agentic Mooncake block_size must be greater than 0"},
		{AgenticMooncake, strings.Replace(header64, `"d"`, `" "`, 1), 1, "agentic Mooncake source provenance requires nonempty format and digest"},
		{AgenticMooncake, strings.Replace(header64, "local", "global", 1), 1, header},
		{AgenticMooncake, "[1]", 1, header},
		{AgenticMooncake, header64 + "{]", 2, request("2")},
		{AgenticMooncake, header64 + a + b(deps(dep("a", "completion", 1, "sibling"))), 3, request("3")},
		{AgenticMooncake, header64 + row(`,"not_before_ms":0`, ""), 2, request("2")},
		{AgenticMooncake, header64 + a + a, 3, "trace line 3 duplicates request_id a"},
		{AgenticMooncake, header64 + row(`"a"`, `" "`), 2, "trace line 2 has empty request_id"},
		{AgenticMooncake, header64 + row(`"p"`, `""`), 2, "trace line 2 has empty play_id"},
		{AgenticMooncake, header64 + row(`"s"`, `""`), 2, "trace line 2 has empty session_id"},
		{AgenticMooncake, header64 + row(`"m"`, `""`), 2, "trace line 2 has an empty model"},
		{AgenticMooncake, header64 + row("[1]", "[1,2]"), 2, "trace line 2 has input_length 64 at block_size 64 and requires exactly 1 hash_ids, got 2"},
		{AgenticMooncake, header64 + row(`,"hash_ids":[1]`, ""), 2, "trace line 2 is missing hash_ids"},
		{AgenticMooncake, header64 + row("[1]", "[]"), 2, "trace line 2 has empty hash_ids"},
		{AgenticMooncake, header64 + row("64", "0"), 2, "trace line 2 has zero input_length"},
		{AgenticMooncake, header64 + row("_ms\":0", "_ms\":-1"), 2, "trace line 2 has invalid not_before_ms -1"},
		{AgenticMooncake, header64 + row("{", `{"recorded_api_time_ms":-1,`), 2, "trace line 2 has invalid recorded_api_time_ms -1"},
		{AgenticMooncake, header64 + a + b(deps(dep("a", "completion", -1, "join"))), 3, "trace line 3 has invalid dependency delay -1"},
		{AgenticMooncake, header64 + a + b(deps(dep("a", "dispatch", 1, "sequence"))), 3, "trace line 3 has invalid Sequence dependency with Dispatch trigger"},
		{AgenticMooncake, header64 + node("a", "p", 0, deps(dep("z", "completion", 1, "join"))), 2, "request a references unknown request_id z"},
		{AgenticMooncake, header64 + a + b(deps(dep("b", "completion", 1, "join"))), 3, "request b cannot depend on itself"},
		{AgenticMooncake, header64 + a + node("b", "q", 0, deps(dep("a", "completion", 1, "join"))), 3, "request b in play q depends on request a in play p"},
		{AgenticMooncake, header64 + node("a", "p", 0, deps(dep("b", "completion", 1, "join"))) + b(deps(dep("a", "completion", 1, "join"))), 2, "cycle detected among 2 agentic requests; blocked request IDs: a, b"},
		{AgenticMooncake, header64 + node("a", "p", 0, `,"source_play_ordinal":0`) + node("b", "q", 0, ""), 0, "source_play_ordinal must be set for every play when it is used"},
		{AgenticMooncake, header64 + a + b(`,"source_play_ordinal":0`), 3, "play p has inconsistent source_play_ordinal values"},
		{AgenticMooncake, header64 + node("a", "p", 0, `,"source_play_ordinal":0`) + node("b", "q", 0, `,"source_play_ordinal":2`), 0, "source_play_ordinal values must be unique and contiguous from 0; expected 1, found 2"},

		{AgenticMooncake, `{"request_id":"a","delay":1,"delay_ms":1}`, 1, "failed to parse line 1 from PATH as agentic Mooncake JSON"},
		{AgenticMooncake, `{"request_id":"a","input_length":513,"output_length":1,"hash_ids":[1]}`, 1, "trace line 1 has input_length 513 but only 64 tokens can be synthesized from 1 hash_ids at trace_block_size 64"},
		{AgenticMooncake, `{"request_id":"b","wait_for":["a"],"input_length":1,"output_length":1,"hash_ids":[1]}`, 1, "request b waits for unknown request_id a"},
		{AgenticMooncake, `{"request_id":"a","wait_for":["a"],"input_length":1,"output_length":1,"hash_ids":[1]}`, 1, "cycle detected at request a"},

		{AppliedCompute, strings.Replace(appliedA, "[0.01,0.0205]", "[1]", 1), 1, "trace line 1 field tool_call_latency length 1 does not match num_turns 2"},
		{AppliedCompute, strings.Replace(appliedA, ":100", ":0", 1), 1, "trace line 1 input_prompt_length must be positive"},
		{AppliedCompute, strings.Replace(appliedA, "0.0205", "-1", 1), 1, "trace line 1 tool_call_latency[1] must be a finite non-negative number"},
		{AppliedCompute, strings.Replace(appliedA, `"num_turns":2,`, "", 1), 1, parse("1")},

		{Dynamo, dynamoRow("b", 100, 50, 64, "1", "") + dyn("}}", "}}"+s1), 2, "Dynamo request trace cannot mix requests with and without agent_context"},
		{Dynamo, dyn("", "") + strings.Replace(dynamoRow("b", 1, 1, 64, "1", ""), `_size":64`, `_size":32`, 1), 2, "mixed replay trace_block_size values are not supported"},
		{Dynamo, dyn(`_size":64`, `_size":0`), 1, "embedded trace block size must be positive"},
		{Dynamo, dyn("", "") + dyn("", ""), 2, `duplicate request_id "a"`},
		{Dynamo, dyn(`"a"`, `" "`), 1, "request_id must be nonempty"},
		{Dynamo, dyn(`"request":`, `"requests":`), 1, "request_end is missing request metrics"},
		{Dynamo, strings.Replace(dyn("", ""), "}}}", `}},"request":null}`, 1), 1, "request_end is missing request metrics"},
		{Dynamo, dyn(`"output_tokens":2,`, ""), 1, "missing output_tokens"},
		{Dynamo, "", 0, "Dynamo trace contains no request_end records"},
		{Dynamo, dyn("request_end", "x"), 1, "failed to parse PATH:1"},
		{Dynamo, dyn(`"event_type":"request_end",`, ""), 1, "failed to parse PATH:1"},
		{Dynamo, dyn("trace.v1", "trace.v2"), 1, "failed to parse PATH:1"},
		{Dynamo, dyn(`"replay"`, `"play"`), 1, "failed to parse PATH:1"},
		{Dynamo, "{]", 1, "failed to parse PATH:1"},
		{Dynamo, "\"\xff\"", 1, "failed to read PATH:1"},
		{Dynamo, dyn(":50.0", ":-0.4"), 1, "request duration must be finite and nonnegative"},
		{Dynamo, dyn(`length":64`, `length":65`), 1, "trace line 1 input_length 65 exceeds hash_ids capacity 64"},
		{Dynamo, dynamoRow("a", 100, 50, 64, "1", s1) + dynamoRow("b", 145, 50, 64, "1", s1), 2, "trace line 3 has invalid dependency delay -5"},
		{Dynamo, dynamoRow("a", 100, 50, 64, "1", ctx(`{"session_id":"s1","parent_session_id":"zz"}`)), 1, `child session "s1" references unknown parent session "zz"`},
		{Dynamo, family + dynamoRow("d", 200, 1, 64, "1", ctx(`{"session_id":"c","parent_session_id":"q"}`)), 4, `session "c" has conflicting parent_session_id values "p" and "q"`},
		{Dynamo, family + tool("blocking", "foo"), 4, `tool "t1" (agent) has unsupported execution_mode "foo"`},
		{Dynamo, family + tool(`"p1"`, `"zz"`), 4, `tool "t1" references unknown request_id "zz"`},
		{Dynamo, family + tool(`"p1"`, `"q1"`), 4, `tool "t1" request "q1" belongs to session "q", expected "p"`},
		{Dynamo, family + tool(`"t1",`, `"t1","started_at_unix_ms":9,"ended_at_unix_ms":8,`), 4, "tool end time precedes start time"},
		{Dynamo, family + tool("", "") + tool("t1", "t2"), 5, `multiple tool events reference child session "c"`},
		{Dynamo, family + tool(`"t1"`, `""`), 4, "tool_call_id must be nonempty"},
		{Dynamo, dynamoRow("a", 100, 50, 64, "1", ctx(`{"session_id":" "}`)), 1, "session_id must be nonempty"},
		{Dynamo, strings.Replace(family, ":120,", ":90,", 1) + tool("", ""), 2, "trace line 2 has invalid dependency delay -10"},
		{Dynamo, explicit("zz", "completion", "join"), 1, `request "p1" depends on unknown request_id "zz"`},
		{Dynamo, explicit("c1", "completion", "join"), 1, `request "p1" depends on later request "c1"`},
		{Dynamo, dynamoRow("a", 100, 50, 64, "1,2", s1), 1, "trace line 2 has input_length 64 at block_size 64 and requires exactly 1 hash_ids, got 2"},

		{Weka, "", 0, "Weka source PATH contains no trace objects"},
		{Weka, weka("local", "global"), 1, `Weka trace trace.jsonl#000000 has unsupported hash_id_scope "global"; expected local`},
		{Weka, weka(`:64,"out"`, `:0,"out"`), 1, "Weka trace trace.jsonl#000000 has a zero-length request"},
		{Weka, weka(`"t":0`, `"t":-1`), 1, "Weka trace trace.jsonl#000000 has invalid request timestamp"},
		{Weka, weka("", "") + "\n" + weka(":64", ":32"), 2, "Weka corpus mixes block sizes: trace.jsonl#000001 has 32, expected 64"},
		{Weka, weka("", "") + "\n{", 2, "parsing Weka source PATH object 2"},
		{Weka, weka(`"in":64`, `"in":64,"in":64`), 1, "parsing Weka source PATH object 1"},
		{Weka, weka(`"type":"n"`, `"type":"n","type":"n"`), 1, "parsing Weka source PATH object 1"},
		{Weka, weka(`"in":64`, `"in":64,"hash_ids":[1]`), 1, "parsing Weka source PATH object 1"},
		{Weka, weka(`"in":64`, `"in":64,"ttft":"x"`), 1, "parsing Weka source PATH object 1"},
		{Weka, weka(`"id":"t"`, `"id":"t","tool_tokens":-1`), 1, "parsing Weka source PATH object 1"},
		{Weka, weka(`]}`, `]},{"type":"subagent","t":1,"agent_id":"g","agent_id":"g","subagent_type":"x","status":"completed","requests":[]}`), 1, "parsing Weka source PATH object 1"},
	}
	for _, c := range tests {
		path := write(t, "trace.jsonl", c.text)
		o := LoadOptions{Format: c.format, BlockSize: 64}
		tr, err := Load([]string{path}, o)
		if err == nil {
			_, err = tr.NewSource(open(64))
		}
		want := strings.ReplaceAll(c.want, "PATH", path)
		var at *InputError
		if !errors.As(err, &at) || at.Msg != want || at.Line != c.line || at.File != path {
			t.Errorf("%s: %.80q\n got %v\nwant %s at line %d", c.format, c.text, err, want, c.line)
		}
	}
}

func TestBadOptions(t *testing.T) {
	good := write(t, "trace.jsonl", moon("", ""))
	graph := write(t, "graph.jsonl", header64+node("a", "p", 0, ""))
	applied := write(t, "applied.jsonl", appliedA)
	dynamo := write(t, "dynamo.jsonl", dynamoRow("a", 1, 1, 64, "1", ""))
	agents := write(t, "agents.jsonl", dynamoRow("a", 1, 1, 64, "1", `,"agent_context":{"session_id":"s"}`))
	text := write(t, "w.txt", "{}")
	with := func(edit func(*Drive)) Drive { d := open(64); edit(&d); return d }
	tests := []struct {
		files []string
		o     LoadOptions
		d     Drive
		want  string
	}{
		{nil, mooncake(64), open(64), "trace replay requires at least one trace file"},
		{[]string{good, good}, mooncake(64), open(64), "trace_format='mooncake' requires exactly one trace file, got 2"},
		{[]string{"nowhere"}, mooncake(64), open(64), "failed to open trace file nowhere"},
		{[]string{"nowhere"}, LoadOptions{Format: Dynamo}, open(64), "failed to open nowhere"},
		{[]string{good}, mooncake(0), open(64), "trace_block_size must be greater than 0"},
		{[]string{good}, mooncake(64), with(func(d *Drive) { d.Speedup = 0 }), "ratio must be a finite positive number, got 0"},
		{[]string{good}, mooncake(64), with(func(d *Drive) { d.Speedup = math.NaN() }), "ratio must be a finite positive number, got NaN"},
		{[]string{good}, mooncake(64), closed(64, 0), "replay_concurrency must be at least 1"},
		{[]string{good}, mooncake(64), open(0), "block_size must be at least 1, got 0"},
		{[]string{good}, mooncake(64), with(func(d *Drive) { d.Laned, d.Lanes = true, 1 }), "agentic_lanes requires trace_format='agentic_mooncake', 'weka', or 'dynamo'"},
		{[]string{dynamo}, LoadOptions{Format: Dynamo}, with(func(d *Drive) { d.Laned, d.Lanes = true, 1 }), "agentic_lanes requires an agentic Dynamo request trace"},
		{[]string{graph}, agentic(), with(func(d *Drive) { d.Laned = true }), "agentic_lanes must be at least 1"},
		{[]string{graph}, agentic(), Drive{BlockSize: 64, ClosedLoop: true, Concurrency: 1, Laned: true, Lanes: 1}, "agentic_lanes cannot be combined with replay_concurrency"},
		{[]string{graph}, agentic(), closed(64, 1), "agentic_mooncake trace format is not supported with replay_concurrency"},
		{[]string{agents}, LoadOptions{Format: Dynamo}, closed(64, 1), "agentic Dynamo request traces are not supported with replay_concurrency"},
		{[]string{applied}, LoadOptions{Format: AppliedCompute, BlockSize: 64}, open(64), "trace_format='applied_compute_agentic' requires replay_concurrency because source traces do not contain first-turn timestamps"},
		{[]string{applied}, LoadOptions{Format: AppliedCompute, BlockSize: 64, SharedPrefixRatio: 1.5}, closed(64, 1), "shared_prefix_ratio must be between 0.0 and 1.0, got 1.5"},
		{[]string{dynamo}, LoadOptions{Format: Dynamo, BlockSize: 512}, open(64), "trace_block_size 512 does not match embedded Dynamo request trace block size 64"},
		{[]string{text}, LoadOptions{Format: Weka}, open(64), "Weka source file must use a .json or .jsonl extension: " + text},
		{[]string{good}, LoadOptions{Format: azureCSV, BlockSize: 64}, open(64), "a table of requests in the form of 'azure' cannot be replayed; convert it first"},
	}
	for _, c := range tests {
		tr, err := Load(c.files, c.o)
		if err == nil {
			_, err = tr.NewSource(c.d)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if _, err := ParseFormat("x"); err == nil || err.Error() != "trace_format must be 'mooncake', 'mooncake-delta', 'agentic_mooncake'/'agentic-mooncake', 'weka', 'applied_compute_agentic', or 'dynamo', got 'x'" {
		t.Error(err)
	}
}
