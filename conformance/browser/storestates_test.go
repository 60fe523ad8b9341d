package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Each state of the account has a view, and the page goes on by itself when it can.
func TestTheExplorerSaysWhatItWaitsFor(t *testing.T) {
	const asks, throttled, lost, failed, empty = 0, 1, 2, 3, 4
	var state atomic.Int64
	asked := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/status":
			fmt.Fprint(w, `{"name":"a","program":"b","write":false,"store":true}`)
		case "/store/containers":
			switch state.Load() {
			case asks:
				select {
				case <-asked:
				case <-r.Context().Done():
				}
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, `{"error":"too many","retry_seconds":0.2}`)
			case throttled:
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, `{"error":"too many <b>","retry_seconds":0.2}`)
			case lost:
				panic(http.ErrAbortHandler)
			case failed:
				w.WriteHeader(http.StatusBadGateway)
				fmt.Fprint(w, `{"error":"the account is away"}`)
			case empty:
				fmt.Fprint(w, `{"places":[{"in":"one","containers":[],"error":null},{"in":"two","containers":[],"error":"no right"}]}`)
			}
		default:
			text, err := os.ReadFile(filepath.Join("..", "..", "dashboard", "page", filepath.Base(r.URL.Path)))
			if err != nil {
				http.NotFound(w, r)
				return
			}
			types := map[string]string{".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
			w.Header().Set("Content-Type", types[filepath.Ext(r.URL.Path)])
			_, _ = w.Write(text)
		}
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	tab := page(t, server.URL+"/store.html", 1280, 900)
	shows(t, tab, "p.state.loading", "Loading…")
	asked <- true
	state.Store(throttled)
	shows(t, tab, "p.state.throttled", "The account is throttled: trying again in 0.2 s. too many")
	state.Store(lost)
	shows(t, tab, "p.state.lost", "Connection lost at")
	state.Store(empty)
	shows(t, tab, "p.state", "There is no container yet.")
	shows(t, tab, "p.state.wrong", "no right")
	state.Store(failed)
	do(t, tab, chromedp.Reload())
	shows(t, tab, "p.state.wrong", "the account is away")
}

// Each control of the explorer is reached by Tab and works by Enter, and the focus goes where a person expects it.
func TestTheExplorerWorksByKeyboard(t *testing.T) {
	w := editable(t, 1)
	w.write(`{"id":"1","city":"Rome","n":1}`)
	tab := w.store("", 1280)
	shows(t, tab, "table", "shop/orders")
	focus := func() string {
		return evaluate[string](t, tab, `(() => {
			const e = document.activeElement;
			return e.ariaLabel || e.innerText || e.labels?.[0]?.innerText || e.tagName;
		})()`)
	}
	step := func(until string, keys ...string) {
		t.Helper()
		for range 40 {
			do(t, tab, chromedp.KeyEvent(kb.Tab))
			if focus() == until {
				for _, key := range keys {
					do(t, tab, chromedp.KeyEvent(key))
				}
				return
			}
		}
		t.Fatalf("no way by Tab to %q: the focus is on %q", until, focus())
	}
	step("Skip to the documents", kb.Enter)
	step("New container", kb.Enter)
	step("Name", "shop/other")
	step("Create", kb.Enter)
	shows(t, tab, "h2", "shop/other")
	eventually(t, "the title has the focus", func() error {
		if got := focus(); got != "shop/other" {
			return fmt.Errorf("%q has", got)
		}
		return nil
	})
	do(t, tab, chromedp.NavigateBack())
	shows(t, tab, "table", "shop/orders")
	step("shop/orders", kb.Enter)
	shows(t, tab, "table", "Rome")
	step("1", kb.Enter)
	has(t, tab, documentText, `"n": 1`)
	if got := focus(); got != "Document 1" {
		t.Errorf("the focus is on %q, want the title of the document", got)
	}
	step("Document as JSON")
	do(t, tab, chromedp.KeyEvent(kb.Home, chromedp.KeyModifiers(2)), chromedp.KeyEvent(" "),
		chromedp.KeyEvent("s", chromedp.KeyModifiers(2)))
	shows(t, tab, ".detail .state", "Saved for")
	do(t, tab, chromedp.KeyEvent(kb.Escape))
	if got := focus(); got != "1" {
		t.Errorf("after Escape the focus is on %q, want the row", got)
	}
	step("Copy as", kb.Enter)
	step("Copy", kb.Enter)
	eventually(t, "the text is copied", func() error {
		if text := evaluate[string](t, tab, "document.querySelector('.copy [role=status]:not(p)').innerText"); text == "" {
			return fmt.Errorf("nothing is said")
		}
		return nil
	})
	do(t, tab, chromedp.Evaluate("document.querySelector('h2').focus()", nil))
	step("Query", kb.Enter)
	shows(t, tab, "label", "SQL (Ctrl+Enter runs it)")
	step("Run", kb.Enter)
	shows(t, tab, "table", "Rome")
	do(t, tab, chromedp.Evaluate("document.querySelector('h2').focus()", nil))
	step("Feed", kb.Enter)
	shows(t, tab, "label", "Mode")
	step("Follow", kb.Enter)
	shows(t, tab, "p.state", "Nothing has changed since")
	do(t, tab, chromedp.Evaluate("document.querySelector('h2').focus()", nil))
	step("Partitions", kb.Enter)
	shows(t, tab, "table", "Split")
	step("Split partition 0", kb.Enter)
	shows(t, tab, "p.state.good", "is split into")
	step("Merge partitions 1 and 2", kb.Enter)
	shows(t, tab, "p.state.good", "are merged into")
	do(t, tab, chromedp.Evaluate("document.querySelector('h2').focus()", nil))
	step("Documents", kb.Enter)
	shows(t, tab, "table", "Rome")
	step("1", kb.Enter)
	has(t, tab, documentText, `"n": 1`)
	w.write(`{"id":"1","city":"Rome","n":2}`) // by somebody else
	step("Document as JSON", " ")
	step("Save", kb.Enter)
	shows(t, tab, ".detail .state", "has another etag now")
	step("Write mine over it", kb.Enter)
	shows(t, tab, ".detail .state", "Saved for")
	do(t, tab, chromedp.Evaluate("document.querySelector('.detail h3, .detail h2').focus()", nil))
	step("Delete", kb.Enter)
	step("Delete for good", kb.Enter)
	shows(t, tab, ".state", "Deleted document 1 for")
	do(t, tab, chromedp.Evaluate("document.querySelector('h2').focus()", nil))
	step("Delete", kb.Enter)
	shows(t, tab, "label", "Name of the container")
	step("Name of the container", "shop/orders", kb.Enter)
	shows(t, tab, "h2", "Containers")
}
