package explorer

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// events follows a feed, and returns a function that waits for its next change or problem.
func (w *world) events(q url.Values, lastEvent string) (next func() (kind string, c change, text string)) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	w.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"feed?"+q.Encode(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if lastEvent != "" {
		r.Header.Set("Last-Event-ID", lastEvent)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = response.Body.Close() })
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		w.t.Fatalf("%d, %s", response.StatusCode, got)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return func() (kind string, c change, text string) {
		w.t.Helper()
		for lines.Scan() {
			line := lines.Text()
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				kind = name
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &c); err != nil {
					w.t.Fatal(err)
				}
				return kind, c, data
			}
		}
		w.t.Fatalf("the feed has ended: %v", lines.Err())
		return
	}
}

// The latest versions come from the beginning, or from now on, also after a split; each has its document.
func TestTheFeedOfLatestVersions(t *testing.T) {
	w := newWorld(t)
	w.put(`{"id":"1","city":"c","n":12345678901234567890}`)
	begun := w.events(of("from", "beginning"), "")
	if kind, c, _ := begun(); kind != "change" || c.ID != "1" || c.Key != `["c"]` || c.Op != "upsert" ||
		c.Document != `{"id":"1","city":"c","n":12345678901234567890}` || c.Previous != "" || c.LSN == "" ||
		c.Time == "" {
		t.Errorf("%s: %+v", kind, c)
	}
	var made struct{ Made []partition }
	w.ask(http.StatusOK, http.MethodPost, "split", of(), `{"id":"0"}`, "", &made)
	w.put(`{"id":"2","city":"c"}`)
	if _, c, _ := begun(); c.ID != "2" {
		t.Errorf("after a split: %+v", c)
	}
	now, other := w.events(of(), ""), w.events(of("key", "d"), "")
	w.put(`{"id":"3","city":"c"}`, `{"id":"4","city":"d"}`)
	_, first, _ := now()
	if _, c, _ := now(); first.ID+c.ID != "34" && first.ID+c.ID != "43" {
		t.Errorf("from now: %+v and %+v", first, c)
	}
	if _, c, _ := other(); c.ID != "4" {
		t.Errorf("of one partition key: %+v", c)
	}
}

// All versions come with the version before, if the feed has it, and deletes too.
func TestTheFeedOfAllVersions(t *testing.T) {
	w := newWorld(t)
	next := w.events(of("mode", "all"), "")
	w.put(`{"id":"1","city":"c","n":1}`, `{"id":"1","city":"c","n":2}`)
	var d document
	w.get("item", of("id", "1", "key", "c"), &d)
	w.ask(http.StatusOK, http.MethodDelete, "item", of("id", "1", "key", "c"), "", d.ETag, &d)
	for _, want := range []change{
		{Op: "create", Document: `{"id":"1","city":"c","n":1}`},
		{Op: "replace", Document: `{"id":"1","city":"c","n":2}`, Previous: `{"id":"1","city":"c","n":1}`},
		{Op: "delete", Previous: `{"id":"1","city":"c","n":2}`},
	} {
		if _, c, _ := next(); c.Op != want.Op || c.Document != want.Document || c.Previous != want.Previous {
			t.Errorf("got  %+v\nwant %+v", c, want)
		}
	}
}

// A browser that connects again gets the changes since its last one, and not only those from now on.
func TestAFeedGoesOnWhereItsViewerWas(t *testing.T) {
	w := newWorld(t)
	w.put(`{"id":"1","city":"c"}`)
	next := w.events(of("from", "now"), "1000000000")
	if _, c, _ := next(); c.ID != "1" {
		t.Errorf("%+v", c)
	}
}

// A container without versions has no feed of all of them, and says so before the stream.
func TestAFeedThatCannotBeIsRefused(t *testing.T) {
	w := newWorld(t)
	if _, err := w.db.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "shop", ID: "plain", Paths: []string{"/id"}, Ranges: 1,
	}); err != nil {
		t.Fatal(err)
	}
	w.refuses(http.StatusBadRequest, "keeps no versions: want mode latest", http.MethodGet, "feed",
		of("container", "shop/plain", "mode", "all"), "", "")
}

// Only some feeds are read at a time, and one that is left makes room.
func TestFeedsAreBounded(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range mostFeeds {
		response := w.send(ctx, http.MethodGet, "feed", of(), "", "")
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%d", response.StatusCode)
		}
		defer response.Body.Close()
	}
	refused := w.send(ctx, http.MethodGet, "feed", of(), "", "")
	defer refused.Body.Close()
	if refused.StatusCode != http.StatusServiceUnavailable { // a feed has no end to read to
		t.Fatalf("one more: %d", refused.StatusCode)
	}
	cancel()
	for end := time.Now().Add(20 * time.Second); len(w.e.feeds) > 0; {
		if time.Now().After(end) {
			t.Fatalf("%d feeds are read for nobody", len(w.e.feeds))
		}
		w.get("containers", nil, &struct{}{})
	}
}

// A viewer that takes nothing is dropped, and its feed is read no more. Meanwhile not all of the feed is in memory.
func TestAViewerWhoTakesNothingIsDropped(t *testing.T) {
	w := newWorld(t)
	text := strings.Repeat("x", 50_000)
	for i := range 400 { // more than the buffers of a connection hold
		w.put(`{"id":"` + string(rune('a'+i%26)) + `","city":"` + string(rune('A'+i%20)) + `","text":"` + text + `"}`)
	}
	response := w.send(t.Context(), http.MethodGet, "feed", of("from", "beginning"), "", "")
	defer response.Body.Close()
	for end := time.Now().Add(5 * writeTimeout); len(w.e.feeds) > 0; {
		if time.Now().After(end) {
			t.Fatal("the feed is still read")
		}
		w.get("containers", nil, &struct{}{})
	}
}

// A document of a feed is cut, and says so.
func TestLongDocumentsAreCutInAFeed(t *testing.T) {
	w := newWorld(t)
	w.put(`{"id":"1","city":"c","text":"` + strings.Repeat("é", maxFed) + `"}`)
	if _, c, _ := w.events(of("from", "beginning"), "")(); !c.Cut || len(c.Document) > maxFed ||
		len(c.Document) < maxFed-1 {
		t.Errorf("cut %t, %d bytes", c.Cut, len(c.Document))
	}
}
