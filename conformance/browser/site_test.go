package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// documentation serves the site that make site has built.
func documentation(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("..", "..", ".dist", "site")
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err != nil {
		t.Skip("this needs the documentation as a site: make site")
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return server.URL
}

// Pages of the documentation have no violation of the rules of axe-core, do not scroll sideways, and load nothing from
// other hosts, in light and dark, at each width.
func TestTheDocumentationIsForEverybody(t *testing.T) {
	t.Parallel()
	rules := axe(t)
	url := documentation(t)
	for _, theme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1280} {
			t.Run(fmt.Sprintf("%s at %d", theme, width), func(t *testing.T) {
				tab := page(t, "about:blank", width, 900)
				prefers := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}
				for _, name := range []string{"", "start", "start/go", "failures"} {
					at := url + "/" + name
					if name != "" {
						at += ".html"
					}
					do(t, tab, emulation.SetEmulatedMedia().WithFeatures(prefers), chromedp.Navigate(at))
					shows(t, tab, "main h1", "")
					if dark := evaluate[bool](t, tab, "document.documentElement.classList.contains('dark')"); dark != (theme == "dark") {
						t.Errorf("/%s: the page is dark: %v", name, dark)
					}
					for _, asked := range evaluate[[]string](t, tab, "performance.getEntriesByType('resource').map((e) => e.name)") {
						if !strings.HasPrefix(asked, url) && !strings.HasPrefix(asked, "data:") {
							t.Errorf("/%s: the page loads %s", name, asked)
						}
					}
					do(t, tab, picture(fmt.Sprintf("site-%s-%s-%d", strings.ReplaceAll(name, "/", "-"), theme, width)))
					t.Run("/"+name, func(t *testing.T) { isClean(t, tab, rules, width) })
				}
			})
		}
	}
}

// A reader finds a page by a word, without a server that searches.
func TestTheDocumentationIsSearched(t *testing.T) {
	t.Parallel()
	tab := page(t, documentation(t), 1280, 900)
	do(t, tab, chromedp.Click(".DocSearch-Button"), chromedp.WaitVisible("#localsearch-input"),
		chromedp.SendKeys("#localsearch-input", "dead letter"))
	shows(t, tab, ".results", "Parked changes")
	do(t, tab, chromedp.KeyEvent(kb.Enter))
	eventually(t, "a page is opened", func() error {
		if at := evaluate[string](t, tab, "location.pathname"); !strings.HasSuffix(at, ".html") {
			return fmt.Errorf("at %s", at)
		}
		return nil
	})
}
