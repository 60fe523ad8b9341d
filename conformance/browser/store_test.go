package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// editable serves a container shop/orders whose dashboard may write.
func editable(t *testing.T, ranges int) *world {
	t.Helper()
	return worldOf(t, ranges, "--ui-write")
}

// store opens a view of the container shop/orders.
func (w *world) store(view string, width int64) context.Context {
	w.t.Helper()
	tab := page(w.t, "about:blank", width, 900)
	chromedp.ListenTarget(tab, func(event any) {
		if e, ok := event.(*runtime.EventExceptionThrown); ok {
			w.t.Errorf("the page has failed: %v", e.ExceptionDetails)
		}
	})
	do(w.t, tab, chromedp.Navigate(w.ui+"store.html"+view))
	return tab
}

const ordersView = "#container=shop%2Forders&view="

// press presses the button with a text.
func press(t *testing.T, tab context.Context, text string) {
	t.Helper()
	do(t, tab, chromedp.Click(fmt.Sprintf(`//button[normalize-space()=%q]`, text), chromedp.BySearch))
}

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
	eventually(t, "the document is shown with all its digits", func() error {
		if text := evaluate[string](t, tab, `document.querySelector('textarea.document')?.value ?? ''`); !strings.Contains(text,
			`"n": 12345678901234567890`) {
			return fmt.Errorf("it is %q", text)
		}
		return nil
	})
	do(t, tab, chromedp.KeyEvent(kb.Escape))
	if got := evaluate[string](t, tab, "document.activeElement.innerText"); got != "1" {
		t.Errorf("after Escape the focus is on %q, want the row", got)
	}
	do(t, tab, chromedp.Click(`//a[text()="All containers"]`, chromedp.BySearch))
	shows(t, tab, "h2", "Containers")
	do(t, tab, chromedp.NavigateBack())
	shows(t, tab, "table", "Oslo")
}

func TestLook(t *testing.T) {
	if os.Getenv("LOOK") == "" {
		t.Skip()
	}
	w := &world{t: t, ui: "http://127.0.0.1:18090/"}
	for _, v := range []string{"documents", "query", "feed", "partitions", "import", "delete"} {
		for _, width := range []int64{360, 1280} {
			tab := w.store(ordersView+v, width)
			do(t, tab, chromedp.Sleep(1500*1e6))
			var image []byte
			do(t, tab, chromedp.FullScreenshot(&image, 100))
			_ = os.WriteFile(filepath.Join(os.Getenv("LOOK"), fmt.Sprintf("%s-%d.png", v, width)), image, 0o644)
		}
	}
}
