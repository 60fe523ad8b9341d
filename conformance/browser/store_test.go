package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// editable serves a container shop/orders whose dashboard may write.
func editable(t *testing.T, ranges int) *world {
	t.Helper()
	return worldOf(t, ranges, "--ui-write")
}

// store opens a view of the container shop/orders. A script of the page must not fail.
func (w *world) store(view string, width int64, before ...chromedp.Action) context.Context {
	w.t.Helper()
	tab := page(w.t, "about:blank", width, 900)
	chromedp.ListenTarget(tab, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			w.t.Errorf("the page has failed: %v", e.ExceptionDetails)
		}
	})
	do(w.t, tab, append(before, chromedp.Navigate(w.ui+"store.html"+view))...)
	return tab
}

const ordersView = "#container=shop%2Forders&view="

// press presses the button with a text.
func press(t *testing.T, tab context.Context, text string) {
	t.Helper()
	do(t, tab, chromedp.Click(fmt.Sprintf(`//button[normalize-space()=%q and not(@disabled)]`, text),
		chromedp.BySearch))
}

// edit replaces the text of a field.
func edit(t *testing.T, tab context.Context, selector, text string) {
	t.Helper()
	do(t, tab, chromedp.WaitEnabled(selector), chromedp.SetValue(selector, text))
}

// has waits until an expression of the page has a text.
func has(t *testing.T, tab context.Context, expression, want string) {
	t.Helper()
	eventually(t, expression+" has "+want, func() error {
		if got := evaluate[string](t, tab, "String("+expression+")"); !strings.Contains(got, want) {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

const documentText = `document.querySelector('textarea.document')?.value`

// From the units a person comes to the containers, to their documents, to a document, and back.
func TestDocumentsAreFound(t *testing.T) {
	w := editable(t, 2)
	w.write(`{"id":"1","city":"Rome","n":12345678901234567890}`, `{"id":"2","city":"Oslo"}`)
	tab := page(t, w.ui, 1280, 900)
	do(t, tab, chromedp.Click(`//nav/a[text()="Documents"]`, chromedp.BySearch))
	shows(t, tab, "table", "shop/orders")
	do(t, tab, chromedp.Click(`//td/a[text()="shop/orders"]`, chromedp.BySearch))
	shows(t, tab, "table", "Oslo")
	shows(t, tab, ".facts", "2 rows")
	press(t, tab, "1")
	has(t, tab, documentText, `"n": 12345678901234567890`)
	do(t, tab, chromedp.KeyEvent(kb.Escape))
	if got := evaluate[string](t, tab, "document.activeElement.innerText"); got != "1" {
		t.Errorf("after Escape the focus is on %q, want the row", got)
	}
	do(t, tab, chromedp.Click(`//a[text()="All containers"]`, chromedp.BySearch))
	shows(t, tab, "h2", "Containers")
	do(t, tab, chromedp.NavigateBack())
	shows(t, tab, "table", "Oslo")
	do(t, tab, chromedp.Click(`//nav/a[text()="Units"]`, chromedp.BySearch))
	shows(t, tab, "#units", "This process shows no unit.")
}

// A document is created, changed and deleted. Its numbers keep their digits, and a conflict shows both versions.
func TestDocumentsAreEdited(t *testing.T) {
	w := editable(t, 1)
	tab := w.store(ordersView+"documents", 1280)
	shows(t, tab, ".facts", "No rows.")
	press(t, tab, "New document")
	has(t, tab, documentText, `"city": ""`)
	edit(t, tab, "textarea.document", `{"id":"1", nope}`)
	press(t, tab, "Create")
	shows(t, tab, ".detail .state", "line 1, byte")
	edit(t, tab, "textarea.document", `{"id":"1","city":"Rome","n":12345678901234567890}`)
	press(t, tab, "Create")
	shows(t, tab, ".detail .state", "Saved for")
	shows(t, tab, "table", "12345678901234567890")
	// somebody else writes
	w.write(`{"id":"1","city":"Rome","n":12345678901234567891}`)
	edit(t, tab, "textarea.document", `{"id":"1","city":"Rome","n":12345678901234567892}`)
	press(t, tab, "Save")
	shows(t, tab, ".detail .state", "has another etag now")
	shows(t, tab, "pre.difference del", `"n": 12345678901234567891`)
	shows(t, tab, "pre.difference ins", `"n": 12345678901234567892`)
	press(t, tab, "Write mine over it")
	shows(t, tab, ".detail .state", "Saved for")
	// what is not saved is not lost at once
	edit(t, tab, "textarea.document", `{"id":"1","city":"Rome","n":3}`)
	press(t, tab, "Close")
	shows(t, tab, ".detail .state", "not saved")
	press(t, tab, "Delete")
	press(t, tab, "Keep")
	press(t, tab, "Delete")
	press(t, tab, "Delete for good")
	shows(t, tab, ".state", `Deleted document 1 for`)
	shows(t, tab, ".facts", "No rows.")
	if status, body, _ := get(t, w.ui+"store/item?container=shop/orders&id=1&key=Rome"); status != 404 {
		t.Errorf("after the deletion: %d %s", status, body)
	}
}

// A query shows its rows, its charge, its plan and its time, and what is wrong with it.
func TestAQueryIsRun(t *testing.T) {
	w := editable(t, 2)
	var all []string
	for i := range 250 {
		all = append(all, fmt.Sprintf(`{"id":"%d","city":"c%d","n":%[1]d}`, i, i%5))
	}
	w.write(all...)
	tab := w.store(ordersView+"query", 1280)
	edit(t, tab, "form textarea", "SELECT c.id FROM c WHERE c.n >= @least ORDER BY c.n")
	press(t, tab, "Run")
	shows(t, tab, ".state.wrong", "@least has no value")
	edit(t, tab, "form label:nth-of-type(2) textarea", "least=50")
	do(t, tab, chromedp.Focus("form textarea"), chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(2))) // Ctrl
	shows(t, tab, "table", `{"id":"50"}`)
	for _, want := range []string{"100 rows so far", "1 page", " RU, ", "Plan: ORDER BY c.n"} {
		shows(t, tab, ".facts", want)
	}
	do(t, tab, chromedp.Evaluate("document.querySelector('.scroll').scrollTop = 1e9", nil))
	shows(t, tab, ".facts", "200 rows.")
	do(t, tab, chromedp.Evaluate("document.querySelector('.scroll').scrollTop = 1e9", nil))
	shows(t, tab, "table", `{"id":"249"}`)
	do(t, tab, chromedp.Click("table.windowed button"))
	shows(t, tab, ".detail pre", `"id":`)
	do(t, tab, chromedp.Click(".copy summary"))
	shows(t, tab, ".copy pre", "changefeed query -p least=50 "+w.url+"/shop/orders")
	do(t, tab, chromedp.Focus(".copy select"), chromedp.KeyEvent("P"))
	shows(t, tab, ".copy pre", "from azure.cosmos import CosmosClient")
}

// A feed shows changes as differences, in both modes, as they come.
func TestAFeedIsFollowed(t *testing.T) {
	w := editable(t, 2)
	w.write(`{"id":"1","city":"Rome","n":1,"same":true}`)
	tab := w.store(ordersView+"feed", 1280)
	do(t, tab, chromedp.WaitVisible("form"))
	edit(t, tab, "form label:nth-of-type(2) select", "beginning")
	press(t, tab, "Follow")
	shows(t, tab, "ol.feed", "seen here for the first time")
	w.write(`{"id":"1","city":"Rome","n":2,"same":true}`)
	shows(t, tab, "pre.difference del", `"n": 1`)
	shows(t, tab, "pre.difference ins", `"n": 2`)
	press(t, tab, "Stop")
	shows(t, tab, ".state", "Stopped.")
	do(t, tab, chromedp.SendKeys("form select", "all"))
	has(t, tab, "document.querySelector('form label:nth-of-type(2) select').value", "now")
	press(t, tab, "Follow")
	shows(t, tab, ".state", "Nothing has changed since")
	w.write(`{"id":"2","city":"Oslo"}`)
	w.command("delete", w.url+"/shop/orders", "2", "--key", "Oslo", "--yes")
	shows(t, tab, "ol.feed", "create")
	shows(t, tab, "ol.feed", "delete")
	if err := w.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	shows(t, tab, ".state.lost", "Connection lost at")
}

// Whoever splits or merges a partition sees the leases of the units follow.
func TestLeasesFollowASplit(t *testing.T) {
	w := editable(t, 2)
	w.instance("a", succeeds)
	tab := w.store(ordersView+"partitions", 1280)
	shows(t, tab, ".facts", "2 partitions")
	shows(t, tab, ".sentence", "2 leases")
	do(t, tab, chromedp.Click(`button[aria-label^="Split partition"]`))
	shows(t, tab, ".state.good", "is split into")
	shows(t, tab, ".facts", "3 partitions")
	shows(t, tab, ".sentence", "3 leases, 1 instance")
	do(t, tab, chromedp.Click(`button[aria-label^="Merge partitions"]`))
	shows(t, tab, ".state.good", "are merged into")
	shows(t, tab, ".facts", "2 partitions")
}

// give gives a file to the page, as a person who chooses it.
func give(t *testing.T, tab context.Context, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "orders.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, tab, chromedp.WaitVisible("input[type=file]"), chromedp.ActionFunc(func(ctx context.Context) error {
		id, _, err := runtime.Evaluate("document.querySelector('input[type=file]')").Do(ctx)
		if err != nil {
			return err
		}
		return dom.SetFileInputFiles([]string{file}).WithObjectID(id.ObjectID).Do(ctx)
	}))
}

// A file is imported when it is chosen or dropped, and each line that is refused is named.
func TestAFileIsImported(t *testing.T) {
	w := editable(t, 2)
	tab := w.store(ordersView+"import", 1280)
	give(t, tab,
		`{"id":"1","city":"Rome"}`+"\n<img src=x onerror=\"window.hacked=1\">\n"+`{"id":"2","city":"Oslo"}`)
	shows(t, tab, ".state", "are replaced")
	do(t, tab, chromedp.KeyEvent(kb.Enter)) // the focus is on the button
	shows(t, tab, ".state", "Written: 2 documents")
	shows(t, tab, ".state", "Refused: 1.")
	shows(t, tab, "table", "byte 1: invalid character '<'")
	// the same by drop
	do(t, tab, chromedp.Evaluate(`(() => {
		const data = new DataTransfer();
		data.items.add(new File(['[{"id":"3","city":"Bonn"}]'], 'dropped.json'));
		document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true,
			cancelable: true }));
	})()`, nil))
	shows(t, tab, ".state", "dropped.json has 26 bytes")
	press(t, tab, "Import")
	shows(t, tab, ".state.good", "Written: 1 document,")
}

// A container is made, and is deleted only by somebody who types its name.
func TestAContainerIsMadeAndDeleted(t *testing.T) {
	w := editable(t, 1)
	tab := w.store("", 1280)
	do(t, tab, chromedp.Click("details summary"), chromedp.SendKeys(`input[placeholder="database/container"]`,
		"shop/new"))
	press(t, tab, "Create")
	shows(t, tab, "h2", "shop/new")
	shows(t, tab, ".facts", "No rows.")
	do(t, tab, chromedp.Click(`//nav/a[text()="Delete"]`, chromedp.BySearch))
	shows(t, tab, "#store", "Type its name to delete it.") // until then the view of documents has a form too
	do(t, tab, chromedp.SendKeys("form input", "shop/ne"))
	if !evaluate[bool](t, tab, "document.querySelector('form button').disabled") {
		t.Error("a part of the name is enough")
	}
	do(t, tab, chromedp.SendKeys("form input", "w"+kb.Enter))
	shows(t, tab, "h2", "Containers")
	eventually(t, "the container is not listed", func() error {
		if text := evaluate[string](t, tab, "document.body.innerText"); strings.Contains(text, "shop/new") ||
			!strings.Contains(text, "shop/orders") {
			return fmt.Errorf("%q", text)
		}
		return nil
	})
}

// Without the right to write there is no control for it, and a sentence says why.
func TestAnExplorerThatOnlyReads(t *testing.T) {
	w := newWorld(t, 2)
	w.write(`{"id":"1","city":"Rome"}`)
	tab := w.store(ordersView+"documents", 1280)
	shows(t, tab, "#rights", "This page only reads, because its process was started without --ui-write")
	press(t, tab, "1")
	has(t, tab, documentText, "Rome")
	if !evaluate[bool](t, tab, "document.querySelector('textarea.document').readOnly") {
		t.Error("the document can be edited")
	}
	for _, view := range []string{"documents", "partitions", "import", "delete"} {
		tab := w.store(ordersView+view, 1280)
		shows(t, tab, ".facts", "2 partitions")
		text := evaluate[string](t, tab, "document.getElementById('store').innerText")
		for _, not := range []string{"New document", "Split", "Merge", "Import", "Delete", "Save"} {
			if strings.Contains(text, not) {
				t.Errorf("%s offers %s", view, not)
			}
		}
	}
}

// Whatever a document says is text, in each view.
func TestDocumentsNeverRun(t *testing.T) {
	w := editable(t, 1)
	var all []string
	for i, text := range hostile {
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)
		all = append(all, fmt.Sprintf(`{"id":"%d %s","city":"%[2]s","%[2]s":"%[2]s"}`, i, quoted))
	}
	w.write(all...)
	for _, view := range []string{"documents", "query", "feed"} {
		tab := w.store(ordersView+view, 1280)
		switch view {
		case "query":
			press(t, tab, "Run")
		case "feed":
			do(t, tab, chromedp.WaitVisible("form"))
			edit(t, tab, "form label:nth-of-type(2) select", "beginning")
			press(t, tab, "Follow")
		}
		shows(t, tab, "main", `onerror=`)
		shows(t, tab, "main", `\u202e`)
		if view != "feed" {
			do(t, tab, chromedp.Evaluate("document.querySelector('table.windowed button').click()", nil))
			has(t, tab, documentText, "city")
		}
		do(t, tab, chromedp.Evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })",
			nil))
		if got := evaluate[string](t, tab, "typeof window.hacked"); got != "undefined" {
			t.Errorf("%s: a document has run a script", view)
		}
		if n := evaluate[int](t, tab,
			"document.querySelectorAll('img, svg, main script, main h1, pre h1, bdi *').length"); n != 0 {
			t.Errorf("%s: %d elements come from documents", view, n)
		}
	}
}

// Of many documents only those exist as rows that can be seen, and the pages that are far away are not kept.
func TestManyDocumentsAreAWindow(t *testing.T) {
	w := editable(t, 1)
	var all []string
	for i := range 6000 {
		all = append(all, fmt.Sprintf(`{"id":"%d","city":"c","n":%[1]d}`, i))
	}
	w.write(all...)
	tab := w.store(ordersView+"documents", 1280)
	for n := 100; n <= 6000; n += 100 { // the last page is empty
		if n == 100 {
			shows(t, tab, ".facts", "100 rows so far")
		}
		do(t, tab, chromedp.Evaluate(`new Promise((done) => {
			const region = document.querySelector('.scroll');
			const before = document.querySelector('.facts[role=status]').innerText;
			region.scrollTop = 1e9;
			const wait = () => document.querySelector('.facts[role=status]').innerText !== before
				? done() : setTimeout(wait, 5);
			wait();
		})`, nil, awaitPromise))
	}
	shows(t, tab, ".facts", "6,000 rows.")
	if n := evaluate[int](t, tab, "document.querySelectorAll('table.windowed tbody tr').length"); n > 100 {
		t.Errorf("%d rows exist", n)
	}
	do(t, tab, chromedp.Evaluate("document.querySelector('.scroll').scrollTop = 0", nil))
	shows(t, tab, "table", `"n":0}`) // its page was dropped, and is read again
	if got := evaluate[string](t, tab,
		"document.querySelector('table.windowed').getAttribute('aria-rowcount')"); got != "6001" {
		t.Errorf("the table has %s rows", got)
	}
}

// Each view has no violation of the rules of axe-core, and does not scroll sideways, in light and dark, at each width.
func TestTheExplorerIsForEverybody(t *testing.T) {
	rules := axe(t)
	w := editable(t, 4)
	w.instance("a", succeeds)
	w.write(`{"id":"w1","city":"Rome","text":"`+strings.Repeat("long ", 100)+`"}`, `{"id":"w2","city":"Oslo"}`)
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 768, 1280, 1920} {
			t.Run(fmt.Sprintf("%s at %d", theme, width), func(t *testing.T) {
				prefers := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}
				tab := w.store("", width, emulation.SetEmulatedMedia().WithFeatures(prefers))
				for _, view := range []string{"", "documents", "query", "feed", "partitions", "import", "delete"} {
					do(t, tab, chromedp.Evaluate(fmt.Sprintf("location.hash = %q", ordersView+view), nil))
					if view == "" {
						do(t, tab, chromedp.Evaluate("location.hash = ''", nil))
					}
					w.fill(t, tab, view)
					if got := evaluate[int64](t, tab, "document.documentElement.scrollWidth"); got > width {
						t.Errorf("%s is %d wide", view, got)
					}
					do(t, tab, picture(fmt.Sprintf("store-%s-%s-%d", view, theme, width)))
					var found []struct {
						ID    string
						Help  string
						Nodes []struct{ HTML, FailureSummary string }
					}
					do(t, tab, chromedp.Evaluate(rules, nil),
						chromedp.Evaluate("axe.run().then((r) => r.violations)", &found, chromedp.EvalAsValue,
							awaitPromise))
					for _, v := range found {
						t.Errorf("%s: %s: %s: %+v", view, v.ID, v.Help, v.Nodes)
					}
				}
			})
		}
	}
}

// fill shows something in a view.
func (w *world) fill(t *testing.T, tab context.Context, view string) {
	t.Helper()
	switch view {
	case "":
		shows(t, tab, "table", "shop/orders")
		do(t, tab, chromedp.Click("details summary"))
	case "documents":
		shows(t, tab, "table", "w1")
		press(t, tab, "w1")
		has(t, tab, documentText, "Rome")
	case "query":
		press(t, tab, "Run")
		shows(t, tab, "table", "w1")
		do(t, tab, chromedp.Click(".copy summary"))
		shows(t, tab, ".copy pre", "changefeed query")
	case "feed":
		do(t, tab, chromedp.WaitVisible("form select"))
		press(t, tab, "Follow")
		shows(t, tab, ".state", "Nothing has changed")
		w.write(`{"id":"w3","city":"Bern","n":1}`)
		w.write(`{"id":"w3","city":"Bern","n":2}`)
		shows(t, tab, "pre.difference", `"n": 2`)
	case "partitions":
		shows(t, tab, ".facts", "4 partitions")
		shows(t, tab, ".sentence", "4 leases")
	default:
		shows(t, tab, "#store", map[string]string{"import": "Drop a file", "delete": "Type its name"}[view])
	}
}
