package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// In the pages, a fenced block that begins with
//
//	sh                runs, line by line, in a folder that holds configs/
//	sh exit=N         runs, and its last command ends with exit code N
//	sh skip=REASON    does not run: it needs what REASON names
//	yaml file=NAME    is written to NAME (json too)
//
// Every command is dynosweep or `go run ./cmd/dynosweep`; `> FILE` may follow.

// skipReasons are what a test cannot have: the repository's tools, a browser,
// Python, a cluster.
var skipReasons = []string{"build", "browser", "python", "cluster"}

// pages are the documents with the number of requests that the conversation trace
// keeps there, 0 all: the tutorial runs on the trace as it ships, and the Planner's
// page on the first 20 minutes.
var pages = []struct {
	path string
	rows int
}{
	{"README.md", 300}, {"docs/tutorial.md", 0}, {"docs/sweep.md", 300}, {"docs/search.md", 300}, {"docs/planner.md", 3300},
	{"docs/router.md", 300}, {"docs/fidelity.md", 300}, {"docs/kv-transfer.md", 300}, {"docs/traces.md", 300},
}

func TestCommandsOfThePagesRun(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		t.Run(p.path, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, p.path))
			if err != nil {
				t.Fatal(err)
			}
			rows := p.rows
			if rows == 0 && testing.Short() {
				rows = 300
			}
			t.Chdir(sandbox(t, root, rows))
			ran := 0
			for _, b := range blocks(string(text)) {
				ran += b.run(t, p.path)
			}
			if ran == 0 {
				t.Errorf("%s: no command ran", p.path)
			}
		})
	}
}

// sandbox is a folder with configs/, whose traces keep so many rows (0: all).
func sandbox(t *testing.T, root string, rows int) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "configs"), os.DirFS(filepath.Join(root, "configs"))); err != nil {
		t.Fatal(err)
	}
	traces, err := filepath.Glob(filepath.Join(dir, "configs/traces/*.gz"))
	if err != nil || len(traces) == 0 {
		t.Fatalf("no traces in configs: %v", err)
	}
	for _, path := range traces {
		if rows > 0 {
			shorten(t, path, rows)
		}
	}
	return dir
}

// shorten keeps the first rows of a compressed trace.
func shorten(t *testing.T, path string, rows int) {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	s := bufio.NewScanner(bytes.NewReader(unzip(t, path)))
	s.Buffer(nil, 1<<20)
	for i := 0; i < rows && s.Scan(); i++ {
		fmt.Fprintf(z, "%s\n", s.Bytes())
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// block is a fenced block of a page.
type block struct {
	line int
	kind string
	opts map[string]string
	text []string
}

func blocks(page string) []block {
	var out []block
	var open *block
	for i, line := range strings.Split(page, "\n") {
		head, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open != nil:
			out, open = append(out, *open), nil
		case fence:
			open = &block{line: i + 1, opts: map[string]string{}}
			for j, word := range strings.Fields(head) {
				if key, v, ok := strings.Cut(word, "="); ok {
					open.opts[key] = v
				} else if j == 0 {
					open.kind = word
				}
			}
		case open != nil:
			open.text = append(open.text, line)
		}
	}
	return out
}

// run does what the block says and returns how many commands ran.
func (b *block) run(t *testing.T, page string) int {
	t.Helper()
	if name := b.opts["file"]; name != "" {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Join(b.text, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if b.kind != "sh" {
		return 0
	}
	if why := b.opts["skip"]; why != "" {
		if !slices.Contains(skipReasons, why) {
			t.Errorf("%s:%d: unknown reason %q to skip", page, b.line, why)
		}
		return 0
	}
	commands := b.commands()
	for i, c := range commands {
		want := "0"
		if i == len(commands)-1 && b.opts["exit"] != "" {
			want = b.opts["exit"]
		}
		out, err := runLine(t, c)
		if got := fmt.Sprint(exitCode(err)); got != want {
			t.Errorf("%s:%d: %s\nexit %s, want %s: %v\n%s", page, b.line, c, got, want, err, out)
		}
	}
	return len(commands)
}

// commands are the lines of the block, joined where they end in a backslash.
func (b *block) commands() []string {
	var out []string
	text := strings.ReplaceAll(strings.Join(b.text, "\n"), "\\\n", " ")
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// runLine runs one command line in process and returns what it printed.
func runLine(t *testing.T, line string) (string, error) {
	t.Helper()
	line = strings.Replace(line, "go run ./cmd/dynosweep", "dynosweep", 1)
	words, into := shellWords(t, line)
	if words[0] != "dynosweep" {
		t.Fatalf("not a command of ours: %s", line)
	}
	var out, talk bytes.Buffer
	stdout := io.Writer(&out)
	if into != "" {
		f, err := os.Create(into)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		stdout = f
	}
	err := run(context.Background(), stdout, &talk, words)
	return talk.String() + out.String(), err
}

// shellWord is a run of plain and quoted parts.
var shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)

// shellWords splits a line as a shell does, without variables and escapes.
func shellWords(t *testing.T, line string) (words []string, into string) {
	t.Helper()
	for _, w := range shellWord.FindAllString(line, -1) {
		words = append(words, strings.NewReplacer("'", quoteOf(w, '\''), `"`, quoteOf(w, '"')).Replace(w))
	}
	if n := len(words); n > 2 && words[n-2] == ">" {
		return words[:n-2], words[n-1]
	}
	return words, ""
}

// quoteOf is what a quote character of w becomes: nothing, unless the other one
// encloses it.
func quoteOf(w string, q byte) string {
	if i := strings.IndexAny(w, `'"`); i >= 0 && w[i] != q {
		return string(q)
	}
	return ""
}

// TestExamplesOfTheHelpRun runs every command line that a verb's help shows. An
// example may name a trace that only its reader has, and assert what does not hold.
func TestExamplesOfTheHelpRun(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(sandbox(t, root, 300))
	helpFiles(t)
	ran := 0
	for _, line := range helpExamples(newApp(io.Discard, io.Discard)) {
		out, err := runLine(t, line)
		switch {
		case err == nil:
			ran++
		case errors.Is(err, fs.ErrNotExist), strings.Contains(err.Error(), "no such file"):
		case strings.Contains(line, "--assert") && exitCode(err) == exitFailed:
		default:
			t.Errorf("%s\n%v\n%s", line, err, out)
		}
		if err := os.RemoveAll("aisimulate-output"); err != nil {
			t.Fatal(err)
		}
	}
	if ran < 8 {
		t.Errorf("only %d examples ran to their end", ran)
	}
}

// helpFiles makes the files that examples of the help name.
func helpFiles(t *testing.T) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile("trace.jsonl", unzip(t, "configs/traces/conversation.jsonl.gz"), 0o644))
	for to, from := range map[string]string{"prediction.yaml": "configs/predict.yaml", "search.yaml": "configs/recommend.yaml"} {
		text, err := os.ReadFile(from)
		must(err)
		must(os.WriteFile(to, text, 0o644))
	}
	must(os.WriteFile("tiny.yaml", []byte("workload: {synthetic: {input_tokens: 100, output_tokens: 5, requests: 9}, concurrency: [1, 3]}\n"+
		"timing: {type: aic, model: Qwen/Qwen3-32B, system: h200_sxm}\nsla: {ttft_ms: 1000, itl_ms: 50}\ncost: {usd_per_gpu_hour: 2}\n"), 0o644))
	sweeps := []string{"configs/agg-workers.yaml"}
	for _, dir := range []string{"DIR", "a", "b", "dynosweep-output/before", "dynosweep-output/after"} {
		sweeps = append(sweeps, "tiny.yaml --out "+dir)
	}
	for _, s := range sweeps {
		_, err := runLine(t, "dynosweep sweep --quiet "+s)
		must(err)
	}
	for _, mode := range []string{"round_robin", "kv_router"} {
		_, err := runLine(t, "dynosweep replay trace.jsonl --num-workers 2 --router-mode "+mode+" --report-json "+mode+".json")
		must(err)
	}
}

// helpExamples are the command lines in the descriptions of a tree of verbs.
func helpExamples(c *cli.Command) (out []string) {
	for _, line := range strings.Split(c.Description, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "dynosweep ") && !strings.HasSuffix(line, " ID") {
			out = append(out, line)
		}
	}
	for _, sub := range c.Commands {
		out = append(out, helpExamples(sub)...)
	}
	return out
}

// link is a Markdown link to a place in the repository.
var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

func TestLinksOfThePagesLead(t *testing.T) {
	root := filepath.Join("..", "..")
	var all []string
	for _, dir := range []string{".", "docs", "docs/behaviour"} {
		here, err := filepath.Glob(filepath.Join(root, dir, "*.md"))
		if err != nil || len(here) == 0 {
			t.Fatalf("no pages in %s: %v", dir, err)
		}
		all = append(all, here...)
	}
	found := 0
	for _, page := range all {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no links: the test looks at the wrong pages")
	}
}
