package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/dynosweep/dynosweep/results/compare"
	"github.com/dynosweep/dynosweep/results/page"
	"github.com/dynosweep/dynosweep/results/resultstest"
)

// browser finds a browser, if DYNOSWEEP_BROWSER is set. Without one the test skips and
// says what to do, unless the variable says require.
func browser(t *testing.T) string {
	t.Helper()
	if os.Getenv("DYNOSWEEP_BROWSER") == "" {
		t.Skip("set DYNOSWEEP_BROWSER=1 to open the pages in a browser; scripts/browser.sh installs one (Debian, Ubuntu)")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const advice = "no browser: scripts/browser.sh installs one (Debian, Ubuntu)"
	if os.Getenv("DYNOSWEEP_BROWSER") == "require" {
		t.Fatal(advice)
	}
	t.Skip(advice)
	return ""
}

// tab is a page in the browser, and what it complained about.
type tab struct {
	*testing.T
	ctx      context.Context
	a        *compare.Analysis
	file     string
	troubles []string // console errors, exceptions, requests
}

// session starts one browser for a test.
func session(t *testing.T) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser(t)),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND"))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(stop)
	return ctx
}

// make writes the page of a grid and returns its path.
func makePage(t testing.TB, o resultstest.Options) (*compare.Analysis, string) {
	t.Helper()
	dir := resultstest.Grid(t, o)
	s, err := compare.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Analyse(compare.Options{})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "report.html")
	var b bytes.Buffer
	if err := page.Write(&b, &page.Input{Analysis: a, Replay: replay, Invocation: invocationOf(name)}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return a, name
}

func invocationOf(name string) string { return "dynosweep report " + filepath.Base(filepath.Dir(name)) }

func replay(config string) string { return "dynosweep replay # " + strconv.Itoa(len(config)) }

// open shows the page of a grid and waits until its script is done.
func open(t *testing.T, ctx context.Context, o resultstest.Options, hash string) *tab {
	t.Helper()
	p := &tab{T: t, ctx: ctx}
	p.a, p.file = makePage(t, o)
	err := chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			p.troubles = append(p.troubles, "exception: "+e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" || e.Type == "warning" {
				p.troubles = append(p.troubles, fmt.Sprintf("console %s: %s", e.Type, e.Args[0].Value))
			}
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "file://") && !strings.HasPrefix(e.Request.URL, "blob:") && !strings.HasPrefix(e.Request.URL, "data:") {
				p.troubles = append(p.troubles, "request: "+e.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p.load(hash)
	return p
}

func (p *tab) load(hash string) {
	p.Helper()
	p.do(chromedp.EmulateViewport(1200, 900))
	p.do(chromedp.Navigate("about:blank")) // another hash alone would not load
	p.do(chromedp.Navigate("file://" + p.file + hash))
	p.until(`document.documentElement.dataset.ready === '1' || document.documentElement.dataset.failed`)
	if why := p.text(`document.documentElement.dataset.failed || ''`); why != "" {
		p.Fatalf("the script failed: %s", why)
	}
}

// quiet fails if the page complained or asked for anything.
func (p *tab) quiet() {
	p.Helper()
	if len(p.troubles) > 0 {
		p.Errorf("the page is not quiet: %q", p.troubles)
	}
}

func (p *tab) do(a chromedp.Action[chromedp.Void]) {
	p.Helper()
	if _, err := chromedp.Run(p.ctx, a); err != nil {
		p.Fatal(err)
	}
}

func value[T any](p *tab, js string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		p.Fatalf("%s: %v", js, err)
	}
	return v
}

func (p *tab) text(js string) string { p.Helper(); return value[string](p, js) }
func (p *tab) number(js string) float64 {
	p.Helper()
	return value[float64](p, js)
}

// until waits for an expression to be true; a page that is still changing hands does
// not answer, which counts as not yet.
func (p *tab) until(js string) {
	p.Helper()
	var err error
	for range 400 {
		var done bool
		if done, err = chromedp.Run(p.ctx, chromedp.Evaluate[bool]("!!("+js+")")); err == nil && done {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.Fatalf("waited in vain for %s: %v", js, err)
}

func (p *tab) keys(k string) { p.Helper(); p.do(chromedp.KeyEvent(k)) }

// picture stores a screenshot where DYNOSWEEP_PICTURES says, for people to look at.
func (p *tab) picture(name string, width int64, more ...chromedp.EmulateViewportOption) {
	p.Helper()
	dir := os.Getenv("DYNOSWEEP_PICTURES")
	if dir == "" {
		return
	}
	p.do(chromedp.EmulateViewport(width, 900, more...))
	time.Sleep(300 * time.Millisecond) // charts follow the size
	b, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), b, 0o644); err != nil {
		p.Fatal(err)
	}
}

func TestPageInBrowser(t *testing.T) {
	p := open(t, session(t), resultstest.Options{Points: 60, Seeds: 3, Failed: 3, Planner: true, Loads: 2}, "")
	t.Run("numbers", func(t *testing.T) { p.with(t).numbers() })
	t.Run("filter", func(t *testing.T) { p.with(t).filter() })
	t.Run("sort", func(t *testing.T) { p.with(t).sort() })
	t.Run("keys", func(t *testing.T) { p.with(t).walk() })
	t.Run("judge", func(t *testing.T) { p.with(t).judge() })
	t.Run("names", func(t *testing.T) { p.with(t).names() })
	t.Run("looks", func(t *testing.T) { p.with(t).looks() })
	t.Run("print", func(t *testing.T) { p.with(t).print() })
	p.quiet()
}

func (p *tab) with(t *testing.T) *tab {
	c := *p
	c.T = t
	return &c
}

// numbers are those of the analysis: winner, counts, front, cells.
func (p *tab) numbers() {
	a := p.a
	if got, want := p.text(`document.querySelector('#deploy-0 .big').textContent`), a.Loads[0].Verdict.Winner.Label; got != want {
		p.Errorf("the card says %q, want %q", got, want)
	}
	if got := p.number(`dynosweep.order().length`); got != float64(a.Done) {
		p.Errorf("%v rows, want %d", got, a.Done)
	}
	dots := p.number(`dynosweep.chart('tradeoff').getOption().series.filter(s => s.type === 'scatter' && s.name !== 'deploy').reduce((n, s) => n + s.data.length, 0)`)
	if want := len(a.Loads[0].Cases); int(dots) != want {
		p.Errorf("%v dots, want the %d points of the load", dots, want)
	}
	front := value[[]string](p, `dynosweep.data.loads[0].front.map(i => dynosweep.data.id[i])`)
	var want []string
	for _, i := range a.Loads[0].Front {
		want = append(want, a.Cases[i].ID)
	}
	if !slices.Equal(front, want) {
		p.Errorf("front %v, want %v", front, want)
	}
	for i := 0; i < len(a.Cases); i += 3 {
		c := &a.Cases[i]
		for col, want := range map[string]compare.Estimate{"p95_ttft_ms": c.TTFTMs, "tokens_per_gpu": c.TokensPerGPU, "usd_per_million": c.USDPerMillion} {
			got := p.number(fmt.Sprintf(`(k => dynosweep.data.columns.find(c => c.key === %q).nums[k])(dynosweep.data.id.indexOf(%q))`, col, c.ID))
			if math.Abs(got-want.Mean) > 1e-5*math.Abs(want.Mean) {
				p.Errorf("%s of %s: %v, want %v", col, c.ID, got, want.Mean)
			}
		}
	}
}

// typed types a filter and waits until it has acted.
func (p *tab) typed(text string) string {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{const f = document.getElementById('filter'); f.value = %q; f.dispatchEvent(new Event('input'));}`, text)))
	time.Sleep(200 * time.Millisecond)
	return p.text(`document.getElementById('filter-note').textContent`)
}

// filter gives what a query would, and names the column of a bad one.
func (p *tab) filter() {
	count := func(holds func(*compare.Case) bool) (n int) {
		for i := range p.a.Cases {
			if holds(&p.a.Cases[i]) {
				n++
			}
		}
		return n
	}
	for text, holds := range map[string]func(*compare.Case) bool{
		"router=kv_router": func(c *compare.Case) bool { return c.AxisValues()[2] == "kv_router" },
		"router.mode!=kv_router workers>=4": func(c *compare.Case) bool {
			w, _ := strconv.Atoi(c.AxisValues()[1])
			return c.AxisValues()[2] != "kv_router" && w >= 4
		},
		"p95_ttft<2000": func(c *compare.Case) bool { return c.TTFTMs.Mean < 2000 },
	} {
		want := fmt.Sprintf("%d of %d completed points.", count(holds), p.a.Done)
		if got := p.typed(text); got != want {
			p.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got, want := p.typed("wrokers=2"), `Filter: there is no column "wrokers".`; got != want {
		p.Errorf("a bad filter says %q, want %q", got, want)
	}
	if hash := p.text(`location.hash`); !strings.Contains(hash, "f=") {
		p.Errorf("the filter is not in the address: %q", hash)
	}
	p.typed("")
}

// sort is stable, both ways, for every column shown.
func (p *tab) sort() {
	n := int(p.number(`document.querySelectorAll('#table thead button').length`))
	for k := range n {
		for _, way := range []string{"ascending", "descending"} {
			p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelectorAll('#table thead button')[%d].click()`, k)))
			if got := p.text(fmt.Sprintf(`document.querySelectorAll('#table thead th')[%d].getAttribute('aria-sort')`, k)); got != way {
				p.Errorf("column %d: aria-sort %q, want %q", k, got, way)
			}
		}
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelectorAll('#table thead button')[%d].click()`, k)))
	}
	p.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll('#table thead button')].find(b => b.textContent === 'GPUs').click()`))
	rows, gpus := value[[]int](p, `dynosweep.order()`), value[[]float64](p, `dynosweep.data.gpus`)
	for k := 1; k < len(rows); k++ {
		x, y := gpus[rows[k-1]], gpus[rows[k]]
		if x > y || x == y && rows[k-1] > rows[k] {
			p.Fatalf("rows %d and %d are not in stable order", k-1, k)
		}
	}
	p.do(chromedp.Evaluate[chromedp.Void](`document.getElementById('reset').click()`))
}

// walk goes from the scatter along its front to a point and back, by keys alone.
func (p *tab) walk() {
	p.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('.load:not([hidden]) figure').focus()`))
	front := p.a.Loads[0].Front
	p.keys("\u0303") // right arrow, in the keys of the driver
	p.keys("\u0303")
	want := p.a.Cases[front[1]].ID
	p.keys("\r")
	if got := p.text(`document.querySelector('#detail code').textContent`); got != want {
		p.Errorf("the second point of the front is %s, want %s", got, want)
	}
	if p.text(`document.activeElement.closest('#detail') ? 'in' : 'out'`) != "in" {
		p.Error("focus is not in the detail")
	}
	p.keys("\u001b")
	if got := p.text(`document.getElementById('detail').hidden + ' ' + document.activeElement.tagName`); got != "true FIGURE" {
		p.Errorf("after Esc: %s, want the detail gone and the focus back", got)
	}
	p.keys("t")
	if got := p.text(`document.activeElement.dataset.id || ''`); got != want {
		p.Errorf("t goes to row %q, want %s", got, want)
	}
	p.keys("\u0301") // down
	if got := p.text(`document.activeElement.tagName`); got != "TR" {
		p.Errorf("down goes to %s, want the next row", got)
	}
}

// judge picks the winner again as the analysis does with the same limits.
func (p *tab) judge() {
	s := p.a.Sweep
	again, err := s.Analyse(compare.Options{SLA: compare.SLA{TTFTMs: 1000, ITLMs: 75}, Attainment: 0.9, Prices: []compare.Price{{System: "default", USD: 5}}})
	if err != nil {
		p.Fatal(err)
	}
	p.do(chromedp.Evaluate[chromedp.Void](`{
		const set = (e, v) => { e.value = v; e.dispatchEvent(new Event('change')); };
		const [t, u] = document.querySelectorAll('#limits select');
		set(t, '1000'); set(u, '75'); set(document.querySelector('#limits input'), '90'); set(document.querySelector('#prices input'), '5');
	}`))
	got, w := p.text(`document.getElementById('rejudged').textContent`), again.Loads[0].Verdict.Winner
	for _, want := range []string{"deploy " + w.Label + " (" + w.ID + ")", again.ObjectiveText(w.ObjectiveMean())} {
		if !strings.Contains(got, want) {
			p.Errorf("judged again: %q, want %q in it", got, want)
		}
	}
	p.do(chromedp.Evaluate[chromedp.Void](`{
		const u = document.querySelectorAll('#limits select')[1];
		u.value = ''; u.dispatchEvent(new Event('change'));
	}`))
	if got := p.text(`document.getElementById('rejudged').textContent`); !strings.HasPrefix(got, "Choose both limits") {
		p.Errorf("one limit alone: %q", got)
	}
	p.load("")
}

// names: figures are called by their caption, nothing that can be pressed is nameless.
func (p *tab) names() {
	tree, err := chromedp.Run(p.ctx, func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		p.Fatal(err)
	}
	images := 0
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		var role, name string
		_ = json.Unmarshal(n.Role.Value, &role)
		if n.Name != nil {
			_ = json.Unmarshal(n.Name.Value, &name)
		}
		switch role {
		case "image":
			images++
			fallthrough
		case "button", "combobox", "textbox", "checkbox", "spinbutton", "figure":
			if name == "" {
				p.Errorf("a %s has no name", role)
			}
		}
	}
	if images < 3 {
		p.Errorf("%d images in the accessibility tree, want the charts", images)
	}
	if got, want := p.text(`document.querySelector('.load:not([hidden]) figure').getAttribute('aria-label')`), p.a.Loads[0].Verdict.FrontNote; got != want {
		p.Errorf("the figure is called %q, want its caption %q", got, want)
	}
}

// worst contrast of any text against its background, by the WCAG formula.
const worstContrast = `(() => {
	const rgb = (c) => (c.match(/[\d.]+/g) || []).map(Number);
	const lum = ([r, g, b]) => [r, g, b].map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
	let worst = 99, where = '';
	for (const e of document.querySelectorAll('body *')) {
		if (e.closest('svg, .canvas, .live, [hidden]') || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
		let b = e;
		while (b && rgb(getComputedStyle(b).backgroundColor)[3] === 0) b = b.parentElement;
		const x = lum(rgb(getComputedStyle(e).color)), y = lum(rgb(getComputedStyle(b || document.body).backgroundColor));
		const c = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
		if (c < worst) { worst = c; where = e.tagName + '.' + e.className; }
	}
	return JSON.stringify([worst, where]);
})()`

// tooWide names elements that reach beyond the window and do not scroll by themselves.
const tooWide = `[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll') && !e.closest('.canvas')).slice(0, 5).map((e) => e.tagName + '.' + e.className + '#' + e.id).join(' ')`

func (p *tab) looks() {
	for _, scheme := range []string{"light", "dark"} {
		p.load("#theme=" + scheme)
		var worst []any
		if err := json.Unmarshal([]byte(p.text(worstContrast)), &worst); err != nil {
			p.Fatal(err)
		}
		if worst[0].(float64) < 4.5 {
			p.Errorf("%s: contrast %.2f at %s, want 4.5", scheme, worst[0], worst[1])
		}
		for _, width := range []int64{390, 1200, 1600} {
			p.do(chromedp.EmulateViewport(width, 900))
			time.Sleep(200 * time.Millisecond)
			if got := p.number(`document.documentElement.scrollWidth`); int64(got) > width {
				p.Errorf("%s, %d px: the page is %v wide: %s", scheme, width, got, p.text(tooWide))
			}
			p.picture(fmt.Sprintf("%s-%d", scheme, width), width)
		}
	}
	p.load("")
}

// print gives a few pages that begin with the decision.
func (p *tab) print() {
	p.load("#theme=dark") // paper is light all the same
	pdf, err := chromedp.Run(p.ctx, chromedp.PrintToPDF(chromedp.PDFPrintBackground()))
	if err != nil {
		p.Fatal(err)
	}
	pages := bytes.Count(pdf, []byte("/Type /Page\n"))
	if pages < 2 || pages > 10 {
		p.Errorf("%d printed pages, want a few", pages)
	}
	if dir := os.Getenv("DYNOSWEEP_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "print.pdf"), pdf, 0o644); err != nil {
			p.Fatal(err)
		}
	}
}

// Without scripts the decision, the figure and the reasons are there.
func TestPageWithoutScripts(t *testing.T) {
	ctx := session(t)
	a, name := makePage(t, resultstest.Options{Points: 20, Failed: 2})
	p := &tab{T: t, ctx: ctx, a: a, file: name}
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	p.do(chromedp.Navigate("file://" + name))
	text, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("body")))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{a.Loads[0].Verdict.Winner.Label, a.Loads[0].Verdict.FrontNote, a.Lost[0].Text} {
		if !strings.Contains(text, want) {
			t.Errorf("without scripts %q is missing", want)
		}
	}
}

// Ten thousand points stay usable: the time to draw is told as a multiple of what the
// empty chart library takes in the same browser.
func TestTenThousandPointsInBrowser(t *testing.T) {
	p := open(t, session(t), resultstest.Options{Points: 10000}, "")
	ready := p.number(`performance.now()`)
	rows := p.number(`document.querySelectorAll('#table tbody tr').length`)
	if rows > 200 {
		t.Errorf("%v rows exist at once, want those in sight", rows)
	}
	if got := p.number(`+document.getElementById('table').getAttribute('aria-rowcount')`); got != 10001 {
		t.Errorf("aria-rowcount %v, want 10001", got)
	}
	const redraw = `(() => { const t = performance.now(); const c = dynosweep.chart('tradeoff'); c.setOption(c.getOption(), true); c.getZr().flush(); return performance.now() - t; })()`
	const empty = `(() => { const t = performance.now(); const d = document.createElement('div'); d.style.cssText = 'width:600px;height:300px'; document.body.append(d); const c = echarts.init(d); c.setOption({animation: false, xAxis: {}, yAxis: {}, series: []}); c.getZr().flush(); c.dispose(); d.remove(); return performance.now() - t; })()`
	base := p.number(empty)
	t.Logf("ready after %.0f ms; redraw %.0f ms, an empty chart %.1f ms", ready, p.number(redraw), base)
	if ready > 10000 {
		t.Errorf("usable after %.0f ms", ready)
	}
	p.quiet()
}

// Sweeps that are odd in another way open without a complaint.
func TestOddPagesInBrowser(t *testing.T) {
	ctx := session(t)
	for _, o := range []resultstest.Options{{Points: 0, Failed: 2}, {Points: 1}, {Points: 2, Planner: true}, {Points: 600, Seeds: 2}} {
		p := open(t, ctx, o, "")
		p.quiet()
	}
}
