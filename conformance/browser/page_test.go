package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// picture keeps a picture of a page for people, if CHANGEFEED_PICTURES names a directory.
func picture(name string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		dir := os.Getenv("CHANGEFEED_PICTURES")
		if dir == "" {
			return nil
		}
		const quality = 40
		image, err := cdp.CaptureScreenshot().WithFormat(cdp.CaptureScreenshotFormatWebp).WithQuality(quality).
			WithCaptureBeyondViewport(true).Do(ctx)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name+".webp"), image, 0o644)
	})
}

const succeeds = "cat >/dev/null"

// fails fails on batches with a document that says so.
const fails = `! grep -q '"bad":true'`

// Many findings of one kind are one, and times are those of UTC wherever the browser is.
func TestManyFindingsAreOne(t *testing.T) {
	w := newWorld(t, 8)
	url := w.instance("a", succeeds).dashboard(t)
	tab := page(t, "about:blank", 1280, 900)
	do(t, tab, emulation.SetTimezoneOverride("Asia/Tokyo"), chromedp.Navigate(url))
	shows(t, tab, ".legend", "a: 8")
	eventually(t, "the page has the hour of UTC", func() error {
		text := evaluate[string](t, tab, "document.getElementById('connection').innerText")
		if want := time.Now().UTC().Format("As of 15:"); !strings.HasPrefix(text, want) {
			return fmt.Errorf("it shows %q, want %s", text, want)
		}
		return nil
	})
	w.command("leases", "pause", w.url+"/shop/leases", "--name", "mailer", "--reason", "a test")
	shows(t, tab, ".findings", "8 leases: the lease is paused by ")
	shows(t, tab, ".findings", ": a test")
	if n := evaluate[int](t, tab, "document.querySelectorAll('.findings li').length"); n != 1 {
		t.Errorf("%d findings are shown, want one for all leases", n)
	}
}

func TestAUnitIsShownByEachInstanceAndByTheServer(t *testing.T) {
	w := newWorld(t, 4)
	server := page(t, w.ui, 1280, 900)
	shows(t, server, "#units", "This process shows no unit.")
	a := w.instance("a", succeeds)
	b := w.instance("b", succeeds)
	for _, tab := range []context.Context{
		page(t, a.dashboard(t), 1280, 900), page(t, b.dashboard(t), 1280, 900), server,
	} {
		shows(t, tab, "h2", "mailer on shop/orders")
		shows(t, tab, ".sentence", "4 leases, 2 instances")
		shows(t, tab, ".legend", "a: 2")
		shows(t, tab, ".legend", "b: 2")
		if got := evaluate[int](t, tab, "document.querySelectorAll('.bar rect').length"); got != 4 {
			t.Errorf("the bar has %d parts, want 4", got)
		}
	}
	shows(t, server, "#connection", "As of ")
}

// Each control works by keyboard alone, and the focus goes where a person expects it.
func TestThePageWorksByKeyboard(t *testing.T) {
	w := newWorld(t, 2)
	tab := page(t, w.instance("a", succeeds).dashboard(t), 1280, 900)
	shows(t, tab, ".legend", "a: 2")
	focus := func() string {
		return evaluate[string](t, tab, `(() => {
			const e = document.activeElement;
			return e.role === 'region' || e.role === 'log' ? e.ariaLabel || e.getAttribute('aria-labelledby') : e.innerText;
		})()`)
	}
	step := func(until string) {
		t.Helper()
		for range 30 {
			do(t, tab, chromedp.KeyEvent(kb.Tab))
			if focus() == until {
				return
			}
		}
		t.Fatalf("no way by Tab to %q: the focus is on %q", until, focus())
	}
	step("Skip to the units")
	step("Dark")
	do(t, tab, chromedp.KeyEvent(kb.Enter))
	if got := evaluate[string](t, tab, "document.documentElement.dataset.theme"); got != "dark" {
		t.Errorf("the theme is %q after Enter on the button", got)
	}
	step("-20…")
	do(t, tab, chromedp.KeyEvent(kb.Enter))
	shows(t, tab, ".detail", "What is known")
	if got := focus(); !strings.HasPrefix(got, "Lease -2000") {
		t.Errorf("after Enter the focus is on %q, want the title of the lease", got)
	}
	do(t, tab, chromedp.KeyEvent(kb.Escape))
	if got := focus(); got != "-20…" {
		t.Errorf("after Escape the focus is on %q, want the lease again", got)
	}
	if evaluate[bool](t, tab, "document.querySelector('.detail').checkVisibility()") {
		t.Error("after Escape the details are still shown")
	}
	step("Dead letters")
	do(t, tab, chromedp.KeyEvent(kb.Enter))
	shows(t, tab, "details", "has no access to the dead letters")
	step("happened-title")
}

// Whoever watches sees an instance die, who takes over, a split, and the end and the return of the server.
func TestWhatHappensIsSeenWhileItHappens(t *testing.T) {
	w := newWorld(t, 2)
	a := w.instance("a", succeeds)
	b := w.instance("b", succeeds)
	tab := page(t, a.dashboard(t), 1280, 900)
	shows(t, tab, ".legend", "b: 1")
	if err := b.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, ".legend", "a: 2")
	shows(t, tab, "#events", "took over leases of an instance that shows no life")
	w.command("split", w.url+"/shop/orders", "1")
	shows(t, tab, ".sentence", "3 leases, 1 instance")
	if err := w.server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, ".sentence", "nobody knows how the unit is")
	shows(t, tab, ".unit.stale .sentence", "below is what was known at ")
	shows(t, tab, ".unit.stale .legend", "a: 3") // what was known stays
	if title := evaluate[string](t, tab, "document.title"); !strings.HasPrefix(title, "? mailer") {
		t.Errorf("the title is %q", title)
	}
	if err := w.server.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, ".sentence", "3 leases, 1 instance")
	if err := a.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, "#lost", "Connection lost at ")
	shows(t, tab, "#connection", "Not connected")
	shows(t, tab, ".sentence", "3 leases, 1 instance") // the last state stays
}

// hostile are documents that would be markup, would run, or would turn the text around them.
var hostile = []string{
	`<img src=x onerror="window.hacked=1">`, `<script>window.hacked=1</script>`, `"><svg onload=window.hacked=1>`,
	"javascript:window.hacked=1", "\u202egnirts desrever\u202c", "\u2066isolated\u2069\u200b\ufeff", "😀 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 é",
	"{{constructor.constructor('window.hacked=1')()}}", "</pre></td></table><h1>gone</h1>", "\\u0000 \x7f",
}

// Whatever documents, keys and errors contain is shown as text.
func TestDocumentsAreText(t *testing.T) {
	w := newWorld(t, 1)
	// Each is among documents that are handled, so that the failures are no outage.
	var all []string
	add := func(document map[string]any) {
		var body bytes.Buffer
		encoder := json.NewEncoder(&body)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(document); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			all = append(all, fmt.Sprintf(`{"id":"good%d","city":"city %[1]d"}`, len(all)))
		}
		all = append(all, strings.TrimSpace(body.String()))
	}
	for i, text := range hostile {
		add(map[string]any{"id": fmt.Sprint(i), "city": text, "bad": true, "text": text})
	}
	add(map[string]any{
		"id": "large", "city": "Rome", "bad": true, "text": strings.Repeat("<b>large</b>", 50_000),
	})
	w.write(all...)
	w.command("create", w.url+"/shop/letters", "--pk", "/key")
	a := w.instance("a", fails+` || { echo '<img src=x onerror="window.hacked=1">' >&2; exit 1; }`, "--max-attempts", "1", "--batch-size", "20",
		"--dead-letters", w.url+"/shop/letters")
	tab := page(t, a.dashboard(t), 1280, 900)
	shows(t, tab, "#events", "change parked")
	do(t, tab, chromedp.Click(".unit > details > summary"))
	eventually(t, "all letters are shown", func() error {
		n := evaluate[int](t, tab, "document.querySelectorAll('pre').length")
		if n == len(hostile)+1 {
			return nil
		}
		again := `document.querySelector('.unit > details > button')`
		do(t, tab, chromedp.Poll(again, nil), chromedp.Evaluate(again+".click()", nil), chromedp.Poll(again, nil))
		return fmt.Errorf("%d documents", n)
	})
	open := `document.querySelectorAll('.unit details').forEach((d) => { d.open = true; })`
	do(t, tab, chromedp.Evaluate(open, nil))
	for _, want := range []string{
		`<img src=x onerror=\"window.hacked=1\">`, `\u202e`, "😀 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 é", "<h1>gone</h1>", "…",
	} {
		shows(t, tab, "pre", want)
	}
	if got := evaluate[string](t, tab, "typeof window.hacked"); got != "undefined" {
		t.Error("a document has run a script")
	}
	if n := evaluate[int](t, tab, "document.querySelectorAll('img, svg[onload], td h1, pre *, bdi *').length"); n != 0 {
		t.Errorf("%d elements come from documents", n)
	}
	if n := evaluate[int](t, tab, "document.querySelectorAll('h1').length"); n != 1 {
		t.Errorf("the page has %d titles", n)
	}
}

// Of a thousand leases only those exist as rows that can be seen, and each can be reached.
func TestAThousandLeases(t *testing.T) {
	w := newWorld(t, 4)
	tab := page(t, w.instance("a", succeeds, "--min-leases", "1000").dashboard(t), 1280, 900)
	shows(t, tab, "h3", "Leases (1,000)")
	shows(t, tab, ".sentence", "1,000 leases")
	rows := "document.querySelectorAll('table.windowed tbody tr:not(.space)').length"
	if n := evaluate[int](t, tab, rows); n < 10 || n > 100 {
		t.Errorf("%d rows exist, want those that can be seen", n)
	}
	do(t, tab, chromedp.Evaluate("document.querySelector('table.windowed').parentElement.scrollTop = 1e9", nil))
	shows(t, tab, "table.windowed", "-FF")
	if n := evaluate[int](t, tab, rows); n < 10 || n > 100 {
		t.Errorf("%d rows exist at the end, want those that can be seen", n)
	}
	// the last part of the bar opens its lease, whose row is scrolled to
	do(t, tab, chromedp.Evaluate("document.querySelector('table.windowed').parentElement.scrollTop = 0", nil),
		chromedp.Evaluate("[...document.querySelectorAll('.bar rect')].at(-1).dispatchEvent(new MouseEvent('click'))", nil))
	shows(t, tab, ".detail", "-FF")
	shows(t, tab, "tr.chosen", "-FF")
}

// axe is the text of axe-core.
func axe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip("this needs axe-core: npm ci")
	}
	return string(text)
}

// The page has no violation of the rules of axe-core, and does not scroll sideways, in light and dark, at each width.
func TestThePageIsForEverybody(t *testing.T) {
	rules := axe(t)
	w := newWorld(t, 4)
	w.command("create", w.url+"/shop/letters", "--pk", "/key")
	w.write(`{"id":"w1","city":"Rome","bad":true}`, `{"id":"w2","city":"Oslo"}`)
	a := w.instance("a", fails, "--max-attempts", "2", "--dead-letters", w.url+"/shop/letters", "--ui-write")
	w.instance("b", fails+"; exit $?")
	url := a.dashboard(t)
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 768, 1280, 1920} {
			t.Run(fmt.Sprintf("%s at %d", theme, width), func(t *testing.T) {
				tab := page(t, "about:blank", width, 900)
				prefers := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}
				do(t, tab, emulation.SetEmulatedMedia().WithFeatures(prefers), chromedp.Navigate(url))
				shows(t, tab, ".legend", "b: 2")
				shows(t, tab, ".findings", "differ")
				do(t, tab, chromedp.Click("button.token"), chromedp.Click(".unit > details > summary"))
				shows(t, tab, ".detail", "What is known")
				if got := evaluate[string](t, tab, "document.documentElement.dataset.theme"); got != theme {
					t.Errorf("the theme is %s", got)
				}
				do(t, tab, picture(fmt.Sprintf("unit-%s-%d", theme, width)))
				isClean(t, tab, rules, width)
			})
		}
	}
}
