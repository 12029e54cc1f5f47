package trace

import (
	"fmt"
	"math"

	"github.com/dynosweep/dynosweep/sim/workload"
)

// appliedRow is one sequential session of applied_compute_agentic.
type appliedRow struct {
	turns, prompt, final uint64
	assistant, tool      []uint64
	latencyS             []float64
}

const (
	appliedTurns field = 1 << iota
	appliedPrompt
	appliedFinal
	appliedAssistant
	appliedTool
	appliedLatency
	appliedAll = 1<<iota - 1
)

// loadApplied reads applied_compute_agentic (spec workload 2.6): a line is a session
// whose prompts grow by what the assistant and its tools add.
func loadApplied(path string, o LoadOptions) (*Trace, error) {
	if !(o.SharedPrefixRatio >= 0 && o.SharedPrefixRatio <= 1) {
		return nil, fmt.Errorf("shared_prefix_ratio must be between 0.0 and 1.0, got %s", workload.FormatFloat(o.SharedPrefixRatio))
	}
	l, err := o.openLines(path, "trace file ")
	if err != nil {
		return nil, err
	}
	b := newBuilder(o, 0)
	err = b.appliedRows(l, o)
	b.t.digest, err = closeWith(l, err)
	if err != nil {
		return nil, err
	}
	return b.finish(path)
}

func (b *builder) appliedRows(l *lines, o LoadOptions) error {
	var s scanner
	var r appliedRow
	fresh := uint64(1) << 63 // ids below are those of groups
	for l.next() {
		if err := r.decode(&s, l.text); err != nil {
			return l.fail(err, "failed to parse line %d from %s as JSON", l.n, l.path)
		}
		if err := r.check(l); err != nil {
			return err
		}
		b.t.sessions = append(b.t.sessions, traceSession{startMs: math.NaN(), line: int32(l.n), named: true,
			name: fmt.Sprintf("applied_compute_agentic_session_%d", l.n)})
		if err := b.appliedTurns(l, &r, o, &fresh); err != nil {
			return err
		}
	}
	b.t.ignored = s.ignored
	return nil
}

// appliedTurns adds the turns of one session. They share one list of nodes, which
// grows with their prompts.
func (b *builder) appliedTurns(l *lines, r *appliedRow, o LoadOptions, fresh *uint64) error {
	t := b.t
	shared, group := 0, 0
	if o.SharedPrefixRatio > 0 && o.PrefixGroups > 0 {
		blocks := (r.prompt-1)/uint64(o.BlockSize) + 1
		shared = int(math.Round(float64(blocks) * o.SharedPrefixRatio))
		group = (l.n - 1) % o.PrefixGroups
	}
	first, parent := len(t.nodes), root
	input := r.prompt
	for k := uint64(0); k <= r.turns; k++ {
		output, delayMs := r.final, 0.0
		if k < r.turns {
			output = r.assistant[k]
		}
		if k > 0 {
			input += r.assistant[k-1] + r.tool[k-1]
			delayMs = float64(r.latencyS[k-1] * 1000)
		}
		if input > workload.MaxTokens || output > workload.MaxTokens {
			return l.fail(nil, "trace line %d has a length of %d tokens; at most %d can be replayed", l.n, max(input, output), workload.MaxTokens)
		}
		if int(input)/o.BlockSize >= workload.MaxOwnBlocks {
			return l.fail(nil, "trace line %d has a prompt of %d tokens, more than %d blocks of %d", l.n, input, workload.MaxOwnBlocks, o.BlockSize)
		}
		for n := len(t.nodes) - first; n*o.BlockSize < int(input); n++ {
			id := uint64(group)<<32 | uint64(n)
			if n >= shared {
				id = *fresh
				*fresh++
			}
			parent = b.chain.next(parent, id)
			t.nodes = append(t.nodes, parent)
		}
		t.turns = append(t.turns, traceTurn{delayMs: delayMs, first: first, input: int32(input), output: int32(output)})
		b.lineOf = append(b.lineOf, int32(l.n))
		b.sessionOf = append(b.sessionOf, int32(len(t.sessions)-1))
	}
	return nil
}

// decode reads a line; all members are required.
func (r *appliedRow) decode(s *scanner, text []byte) error {
	*r = appliedRow{assistant: r.assistant[:0], tool: r.tool[:0], latencyS: r.latencyS[:0]}
	var seen field
	s.reset(text)
	for s.object(); s.member(); {
		switch string(s.key) {
		case "num_turns":
			s.once(&seen, appliedTurns)
			r.turns = s.uint(math.MaxInt64)
		case "input_prompt_length":
			s.once(&seen, appliedPrompt)
			r.prompt = s.uint(math.MaxInt64)
		case "final_assistant_response_length":
			s.once(&seen, appliedFinal)
			r.final = s.uint(math.MaxInt64)
		case "assistant_response_length":
			s.once(&seen, appliedAssistant)
			r.assistant = s.uints(r.assistant)
		case "tool_call_output_length":
			s.once(&seen, appliedTool)
			r.tool = s.uints(r.tool)
		case "tool_call_latency":
			s.once(&seen, appliedLatency)
			for s.array(); s.element(); {
				r.latencyS = append(r.latencyS, s.float())
			}
		default:
			s.ignore()
		}
	}
	if s.err == nil && seen != appliedAll {
		s.fail("num_turns, input_prompt_length, assistant_response_length, tool_call_output_length, " +
			"tool_call_latency and final_assistant_response_length are required")
	}
	return s.end()
}

// uints appends the elements of an array of lengths.
func (s *scanner) uints(to []uint64) []uint64 {
	for s.array(); s.element(); {
		to = append(to, s.uint(math.MaxInt32))
	}
	return to
}

func (r *appliedRow) check(l *lines) error {
	for _, a := range []struct {
		name string
		n    int
	}{
		{"assistant_response_length", len(r.assistant)},
		{"tool_call_output_length", len(r.tool)},
		{"tool_call_latency", len(r.latencyS)},
	} {
		if uint64(a.n) != r.turns {
			return l.fail(nil, "trace line %d field %s length %d does not match num_turns %d", l.n, a.name, a.n, r.turns)
		}
	}
	if r.prompt == 0 {
		return l.fail(nil, "trace line %d input_prompt_length must be positive", l.n)
	}
	for i, v := range r.latencyS {
		if v < 0 {
			return l.fail(nil, "trace line %d tool_call_latency[%d] must be a finite non-negative number", l.n, i)
		}
	}
	return nil
}
