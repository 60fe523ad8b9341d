package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
)

// Whatever a state says is text, also names as those of the prototypes of JavaScript. Rows and lines stay what they
// are.
func TestThePageWithOddStates(t *testing.T) {
	states := make(chan string)
	server := servePage(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			select {
			case s := <-states:
				fmt.Fprintf(w, "event: status\ndata: %s\n\n", s)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	evil := `<img src=x onerror="window.hacked=1">` + "\u202e\u061c\u00ad\U000e0041"
	lease := func(token string, i int) map[string]any {
		return map[string]any{
			"lease": token, "range": token, "from": float64(i) / 1000, "to": float64(i+1) / 1000,
			"owner": evil, "state": evil,
			"position": evil, "attempts": 9, "held": 1, "set_aside": 1, "silent_seconds": 1, "expiration_seconds": 10,
			"in_hand_seconds": nil, "failing_seconds": nil, "outage_seconds": nil, "notes": []string{evil}, "here": nil,
			"pending": 5, "pending_exact": true, "per_second": 2.5, "seconds_left": nil, "oldest_seconds": 1,
		}
	}
	send := func(at string, names ...string) {
		leases := []any{}
		for i, n := range names {
			leases = append(leases, lease(n, i))
		}
		finding := map[string]any{"word": evil, "grade": "failure", "lease": evil, "text": evil, "next": evil}
		instance := map[string]any{
			"name": evil, "presence": evil, "is_here": false, "leases": 1, "weight": 1, "silent_seconds": 1,
			"handler": evil, "program": evil, "options": evil, "notes": []string{evil},
		}
		units := []any{}
		for _, name := range []string{evil, "__proto__", "constructor"} {
			units = append(units, map[string]any{
				"name": name, "container": "__proto__", "sentence": evil, "error": nil, "is_here": false,
				"findings": []any{finding}, "leases": leases, "holes": []any{}, "instances": []any{instance},
				"requests": 1, "request_units": 1, "says": []string{evil},
				"costs":   []any{map[string]any{"for": evil, "requests": 1, "request_units": nil}},
				"pending": 5, "pending_exact": true, "per_second": 2.5,
			})
		}
		text, err := json.Marshal(map[string]any{
			"version": 1, "at": at, "name": evil, "program": evil, "error": evil, "units": units,
			"health": map[string]any{"checks": []any{map[string]any{"name": evil, "ok": false, "why": evil}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		states <- string(text)
	}
	tab := page(t, server.URL, 1280, 900)
	names := []string{"__proto__", "constructor", "hasOwnProperty", evil}
	for i := range 1000 {
		names = append(names, fmt.Sprintf("%04X-%04X", i, i+1))
	}
	send("2020-01-01T10:00:00Z", names...)
	shows(t, tab, "h3", "Leases (1,004)")
	if n := evaluate[int](t, tab, "document.querySelectorAll('.unit').length"); n != 3 {
		t.Errorf("%d units", n)
	}
	shows(t, tab, "bdi", `\u202e\u061c\u00ad\udb40\udc41`)
	if n := evaluate[int](t, tab, "document.querySelectorAll('img').length"); n != 0 {
		t.Errorf("%d images", n)
	}
	// A row that has the focus goes when it is scrolled away: then the region has the focus.
	do(t, tab, chromedp.Evaluate("document.querySelector('table.windowed button.token').focus()", nil),
		chromedp.Evaluate("document.querySelector('table.windowed').parentElement.scrollTop = 1e9", nil))
	eventually(t, "the region has the focus", func() error {
		role := evaluate[string](t, tab, "document.activeElement.role || document.activeElement.tagName")
		if role != "region" {
			return fmt.Errorf("%q has", role)
		}
		return nil
	})
	// To open and close a lease adds nothing to the lines, whatever the clock of the browser is. A clock set back
	// begins them anew.
	do(t, tab, chromedp.Evaluate("document.querySelector('table.windowed').parentElement.scrollTop = 0", nil))
	do(t, tab, chromedp.Click("table.windowed button.token"))
	shows(t, tab, ".detail", "What is known")
	points := func() string {
		return evaluate[string](t, tab, "document.querySelector('.charts polyline').getAttribute('points')")
	}
	if got := points(); got != "0.0,3.0" {
		t.Errorf("points %q after one state, want one", got)
	}
	send("2020-01-01T10:00:10Z", names...)
	shows(t, tab, "figcaption", "Behind: 5 changes")
	send("2020-01-01T09:00:10Z", "000A-000B")
	shows(t, tab, "h3", "Leases (1)")
	if got := points(); got != "0.0,3.0" {
		t.Errorf("points %q after the clock was set back, want one", got)
	}
	if got := evaluate[string](t, tab, "typeof window.hacked"); got != "undefined" {
		t.Error("a state has run a script")
	}
}
