package metrics

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tableRows are the rows of the terminal table: a distribution by the suffix of
// its keys, or a single figure in the first column.
var tableRows = [...]struct {
	label, suffix, key string
}{
	{label: "Time to First Token (ms)", suffix: "_ttft_ms"},
	{label: "Time to Second Token (ms)", suffix: "_ttst_ms"},
	{label: "Request Latency (ms)", suffix: "_e2e_latency_ms"},
	{label: "Inter Token Latency (ms)", suffix: "_itl_ms"},
	{label: "Output Token Throughput Per User (tokens/sec/user)", suffix: "_output_token_throughput_per_user"},
	{label: "Output Token Throughput (tokens/sec)", key: "output_throughput_tok_s"},
	{label: "Request Throughput (requests/sec)", key: "request_throughput_rps"},
	{label: "Request Count (requests)", key: "completed_requests"},
}

// WriteTable writes the terminal table and the three lines under it (spec report
// 11).
func WriteTable(w io.Writer, s *Summary) error {
	rows := [][]string{{"Metric", "avg", "min", "max", "p99", "p90", "p75", "std"}}
	for _, r := range tableRows {
		row := []string{r.label}
		for i, column := range [...]string{"mean", "min", "max", "p99", "p90", "p75", "std"} {
			switch {
			case r.suffix != "":
				row = append(row, s.cell(column+r.suffix))
			case i == 0:
				row = append(row, s.cell(r.key))
			default:
				row = append(row, "N/A")
			}
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	b.WriteString("NVIDIA AIPerf | LLM Metrics\n")
	drawTable(&b, rows)
	for _, line := range [...][2]string{
		{"Wall Time (ms)", "wall_time_ms"},
		{"Prefix Cache Reused Ratio", "prefix_cache_reused_ratio"},
		{"First Admission Prefix Cache Reused Ratio", "first_admission_prefix_cache_reused_ratio"},
	} {
		fmt.Fprintf(&b, "%s: %s\n", line[0], s.cell(line[1]))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell is a figure with thousands commas and two decimals.
func (s *Summary) cell(key string) string {
	v, ok := s.Get(key)
	if !ok {
		return "N/A"
	}
	text := strconv.FormatFloat(v, 'f', 2, 64)
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	for i := len(text) - len(".00") - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// drawTable draws rows, the first of which is the header, with heavy borders.
func drawTable(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	border := func(left, cross, right string) {
		b.WriteString(left)
		for i, width := range widths {
			if i > 0 {
				b.WriteString(cross)
			}
			b.WriteString(strings.Repeat("━", width+2))
		}
		b.WriteString(right + "\n")
	}
	border("┏", "┳", "┓")
	for i, row := range rows {
		for j, cell := range row {
			pad := strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell))
			if j == 0 {
				b.WriteString("┃ " + cell + pad + " ┃")
			} else {
				b.WriteString(" " + pad + cell + " ┃")
			}
		}
		b.WriteByte('\n')
		if i == 0 {
			border("┡", "╇", "┩")
		}
	}
	border("└", "┴", "┘")
}

// WriteOutcomes says how many of the requests that arrived completed, and what
// became of the others, a line per reason.
func WriteOutcomes(w io.Writer, s *Summary) error {
	o := &s.Coverage.Outcomes
	_, err := fmt.Fprintf(w, "completed %d of %d\n%s", o.Completed, s.Requests, strings.Join(append(o.Losses(), ""), "\n"))
	return err
}

// Losses says what became of the requests that did not complete, one text per reason.
func (o *Outcomes) Losses() (out []string) {
	for _, r := range o.Rejected {
		out = append(out, fmt.Sprintf("rejected %d: %s", r.Count, r.Reason))
	}
	if o.Unfinished > 0 {
		out = append(out, fmt.Sprintf("cut %d: unfinished at the time limit", o.Unfinished))
	}
	if o.Unreleased > 0 {
		out = append(out, fmt.Sprintf("not offered %d: the time limit came first, or their session or play had failed", o.Unreleased))
	}
	for _, r := range o.FailedReasons {
		out = append(out, fmt.Sprintf("%s %d: %s", r.Status, r.Count, r.Reason))
	}
	return out
}
