package page_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dynosweep/dynosweep/results/compare"
	"github.com/dynosweep/dynosweep/results/page"
	"github.com/dynosweep/dynosweep/results/resultstest"
)

// The chart library is the official file: its hash is the one that scripts/charts.sh
// recorded after checking the package's own.
func TestChartLibraryIsUnmodified(t *testing.T) {
	lib, err := os.ReadFile("assets/echarts.min.js")
	if err != nil {
		t.Fatal(err)
	}
	version, err := os.ReadFile("assets/VERSION")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lib)
	want := "echarts.min.js sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	if !strings.Contains(string(version), want) {
		t.Errorf("assets/VERSION does not say %s: run scripts/charts.sh", want)
	}
}

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// static is the page as a reader without scripts has it.
func static(html string) string {
	return regexp.MustCompile(`(?s)<script.*?</script>`).ReplaceAllString(html, "")
}

// data decodes the points of a page.
func data(t testing.TB, html string) map[string]any {
	t.Helper()
	m := regexp.MustCompile(`id="data-points">([^<]*)<`).FindStringSubmatch(html)
	raw, err := base64.StdEncoding.DecodeString(m[1])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]any
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestStaticPageSaysTheDecision(t *testing.T) {
	a, name := makePage(t, resultstest.Options{Points: 60, Seeds: 3, Failed: 3, Planner: true})
	html := read(t, name)
	text := static(html)
	v := &a.Loads[0].Verdict
	for _, want := range []string{v.Winner.Label, v.Winner.ID, v.Money, v.Second, v.FrontNote, a.Board.Sentence, a.Lost[0].Text, "<svg", "Where time went", "feed"} {
		if !strings.Contains(text, strings.NewReplacer("+", "&#43;", "'", "&#39;").Replace(want)) {
			t.Errorf("the page without scripts lacks %q", want)
		}
	}
	if n := len(data(t, html)["id"].([]any)); n != 60 {
		t.Errorf("%d points in the data, want 60", n)
	}
}

// Names, reasons and paths come from users: none may become markup, in the static
// part or in the data.
func TestHostileTextStaysText(t *testing.T) {
	const evil = `</script><img src=x onerror=alert(1)>"'&`
	_, name := makePage(t, resultstest.Options{Name: "evil", Points: 2, Failed: 1, Reason: evil})
	a, _ := makePage(t, resultstest.Options{Points: 4})
	a.Sweep.Name, a.Cases[0].Why, a.Cases[0].Label = evil, evil, evil
	var b bytes.Buffer
	if err := page.Write(&b, &page.Input{Analysis: a, Invocation: evil}); err != nil {
		t.Fatal(err)
	}
	for _, html := range []string{read(t, name), b.String()} {
		if strings.Contains(static(html), "<img") {
			t.Error("user text became markup")
		}
		if n := strings.Count(strings.ToLower(html), "</script"); n != 3 {
			t.Errorf("%d ends of scripts, want 3", n)
		}
	}
}

func TestEmptySweepsHaveAPage(t *testing.T) {
	for _, o := range []resultstest.Options{{Points: 0, Failed: 2}, {Points: 1}, {Points: 0}} {
		_, name := makePage(t, o)
		if text := static(read(t, name)); o.Points == 0 && !strings.Contains(text, "Nothing completed") {
			t.Errorf("%+v: the page does not say that nothing completed", o)
		}
	}
}

func TestSameInputSameBytes(t *testing.T) {
	o := resultstest.Options{Points: 40, Seeds: 2, Failed: 2, Planner: true, Loads: 2}
	a, name := makePage(t, o)
	var again bytes.Buffer
	s, err := compare.Read(a.Sweep.Dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Analyse(compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Write(&again, &page.Input{Analysis: b, Replay: replay, Invocation: invocationOf(name)}); err != nil {
		t.Fatal(err)
	}
	if again.String() != read(t, name) {
		t.Error("the same results give another page")
	}
}

// Sizes and time at the largest sweep a page carries in full.
func TestTenThousandPoints(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 10,000 rows")
	}
	dir := resultstest.Grid(t, resultstest.Options{Points: 10000})
	began := time.Now()
	s, err := compare.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Analyse(compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := page.Write(&b, &page.Input{Analysis: a, Replay: replay}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes in %v", b.Len(), time.Since(began))
	if b.Len() > 4_500_000 {
		t.Errorf("the page has %d bytes, more than 4.5 MB", b.Len())
	}
	if d := time.Since(began); d > 10*time.Second { // 3 s is the aim; shared machines are slower
		t.Errorf("took %v", d)
	}
}
