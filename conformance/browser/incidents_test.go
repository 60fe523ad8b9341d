package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// servePage serves the page, with streams of states that a function writes until a browser goes.
func servePage(t *testing.T, stream func(w http.ResponseWriter, r *http.Request)) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			stream(w, r)
		case "/explain":
			fmt.Fprint(w, `{"facts":["f"],"next":[],"history":[]}`)
		case "/":
			http.ServeFile(w, r, filepath.Join("..", "..", "dashboard", "page", "page.html"))
		default:
			text, err := os.ReadFile(filepath.Join("..", "..", "dashboard", "page", filepath.Base(r.URL.Path)))
			if err != nil {
				http.NotFound(w, r)
				return
			}
			types := map[string]string{".js": "text/javascript", ".css": "text/css"}
			w.Header().Set("Content-Type", types[filepath.Ext(r.URL.Path)])
			_, _ = w.Write(text)
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// Each incident is recognised from the page alone, by what internal/proof/alarms has recorded of it.
func TestIncidentsAreRecognised(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "incidents", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	var stream string
	server := servePage(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, stream)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	tab := page(t, "about:blank", 1000, 700)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		recorded, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var incident struct {
			Shows  []string
			Stream string
		}
		if err := json.Unmarshal(recorded, &incident); err != nil || len(incident.Shows) == 0 {
			t.Fatalf("%s: %v, %d texts", file, err, len(incident.Shows))
		}
		stream = incident.Stream
		do(t, tab, chromedp.Navigate(server.URL))
		shows(t, tab, "h2", " on shop/orders")
		text := evaluate[string](t, tab, "document.body.innerText")
		for _, want := range incident.Shows {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page lacks %q; it shows\n%s", name, want, text)
			}
		}
		do(t, tab, picture("incident-"+strings.ReplaceAll(name, "_", "-")))
	}
}
