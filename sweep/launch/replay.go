package launch

import (
	"strings"

	"github.com/dynosweep/dynosweep/sweep/scenario"
)

// Replayer renders resolved configurations as replay commands. It keeps the answers of
// the hardware tables, so that one Replayer serves many points; one goroutine at a time
// may use it.
type Replayer struct {
	// Resolve answers what only the hardware tables know, as the bytes per token of a
	// model's KV cache.
	Resolve func(scenario.TimingQuery) (scenario.TimingAnswer, error)

	transferBytes map[scenario.AICRequest]scenario.TimingAnswer
}

// Args are the arguments of replay.
func (r *Replayer) Args(config string) ([]string, error) {
	return scenario.ReplayArgs([]byte(config), r.answer)
}

func (r *Replayer) answer(q scenario.TimingQuery) (scenario.TimingAnswer, error) {
	if a, ok := r.transferBytes[*q.TransferBytes]; ok {
		return a, nil
	}
	a, err := r.Resolve(q)
	if err != nil {
		return a, err
	}
	if r.transferBytes == nil {
		r.transferBytes = map[scenario.AICRequest]scenario.TimingAnswer{}
	}
	r.transferBytes[*q.TransferBytes] = a
	return a, nil
}

// Line is the command of a configuration, or a comment that says why there is none.
func (r *Replayer) Line(config string) string {
	args, err := r.Args(config)
	if err != nil {
		return "# " + err.Error()
	}
	return "dynosweep replay " + ShellJoin(args)
}

// ShellJoin quotes arguments for a POSIX shell.
func ShellJoin(args []string) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		plain := a != "" && strings.IndexFunc(a, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./=:,@%+", r))
		}) < 0
		if plain {
			b.WriteString(a)
		} else {
			b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "'")
		}
	}
	return b.String()
}
