package cosmosrest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// upsert writes items, named key/id, each by itself.
func upsert(t testing.TB, cont *docstore.Container, names ...string) {
	t.Helper()
	for _, name := range names {
		pk, id, _ := strings.Cut(name, "/")
		if _, err := cont.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":%q}`, id, pk)); err != nil {
			t.Fatal(err)
		}
	}
}

// feedOf is the headers of a read of the latest versions, and others in pairs.
func feedOf(more ...string) map[string]string {
	h := map[string]string{"a-im": "Incremental Feed"}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// walk reads a feed from where the headers say to its end, and gives the ids and the
// last ETag.
func (w *world) walk(t testing.TB, headers map[string]string) (ids, etag string) {
	t.Helper()
	headers = maps.Clone(headers)
	for range 100 {
		a := w.do(t, "GET", docs, headers, "")
		etag = a.header.Get("etag")
		if etag == "" {
			t.Fatalf("answer %d has no ETag", a.status)
		}
		if a.status == http.StatusNotModified {
			return strings.TrimSpace(ids), etag
		}
		ids += column(t, a.list(t, "Documents"), "id") + " "
		headers["if-none-match"] = etag
	}
	t.Fatal("the feed has no end")
	return "", ""
}

func TestFeedHasTheBytesOfTheItems(t *testing.T) {
	w, cont := newContainer(t, Options{})
	a := w.item(t, "a", `, "n":1.0`)
	got := w.do(t, "GET", docs, feedOf(), "").want(t, 200)
	body := string(a.body)
	want := `{"_rid":"` + cont.RID() + `","Documents":[` + body[:len(body)-1] + `,"_lsn":1}],"_count":1}`
	if string(got.body) != want {
		t.Errorf("feed is\n%s\nwant\n%s", got.body, want)
	}
	for name, want := range map[string]string{
		"etag": `"1"`, "lsn": "1", "x-ms-session-token": "0:-1#1", "x-ms-item-count": "1",
		"x-ms-content-path": cont.RID(),
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.header.Get(name), want)
		}
	}
	w.item(t, "b", "") // behind the read
	end := w.do(t, "GET", docs, feedOf("if-none-match", `"2"`), "").want(t, 304)
	for name, want := range map[string]string{
		"etag": `"2"`, "x-ms-session-token": "0:-1#2", "x-ms-item-count": "0",
	} {
		if end.header.Get(name) != want {
			t.Errorf("304: %s is %q, want %q", name, end.header.Get(name), want)
		}
	}
	if len(end.body) > 0 {
		t.Errorf("304 has the body %q", end.body)
	}
}

func TestFeedWithMetadataBesideTheItem(t *testing.T) {
	w, _ := newContainer(t, Options{})
	a := w.item(t, "a", "")
	got := w.do(t, "GET", docs, feedOf("x-ms-cosmos-changefeed-wire-format-version", wire.WireFormat), "").want(t, 200)
	if want := `"Documents":[{"current":` + string(a.body) +
		`,"metadata":{"lsn":1,"crts":`; !strings.Contains(string(got.body), want) {
		t.Errorf("feed is %s, want %s in it", got.body, want)
	}
}

func TestFeedPages(t *testing.T) {
	w, cont := newContainer(t, Options{})
	upsert(t, cont, "p/a", "q/b", "p/c", "q/d", "p/a")
	for _, test := range []struct{ size, ids, etag string }{
		{"1", "b", `"2"`},
		{"2", "b c", `"3"`},
		{"3", "b c d", `"4"`},
		{"-1", "b c d a", `"5"`},
		{"0", "b c d a", `"5"`},
		{"2147483647", "b c d a", `"5"`},
	} {
		a := w.do(t, "GET", docs, feedOf("x-ms-max-item-count", test.size), "")
		if ids := column(t, a.list(t, "Documents"), "id"); ids != test.ids || a.header.Get("etag") != test.etag {
			t.Errorf("page of %s has %s and the ETag %s, want %s and %s", test.size, ids, a.header.Get("etag"),
				test.ids, test.etag)
		}
	}
	if ids, etag := w.walk(t, feedOf("x-ms-max-item-count", "1")); ids != "b c d a" || etag != `"5"` {
		t.Errorf("pages of one: %s up to %s", ids, etag)
	}
}

func TestFeedDoesNotCutTransactions(t *testing.T) {
	w, _ := newContainer(t, Options{})
	batch := `[{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}},{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}}]`
	w.do(t, "POST", docs, under("p", "x-ms-cosmos-is-batch-request", "true", "x-ms-cosmos-batch-atomic", "true"),
		batch).want(t, 200)
	a := w.do(t, "GET", docs, feedOf("x-ms-max-item-count", "1"), "")
	if ids := column(t, a.list(t, "Documents"), "id"); ids != "a b" {
		t.Errorf("page of one begins with %s, want the whole batch", ids)
	}
}

func TestFeedStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is 2000-01-01 00:00:00
		w, cont := newContainer(t, Options{})
		upsert(t, cont, "p/a")
		time.Sleep(10 * time.Second)
		upsert(t, cont, "p/b")
		for _, test := range []struct{ etag, since, ids, next string }{
			{"", "", "a b", `"2"`},
			{`"0"`, "", "a b", `"2"`},
			{`"1"`, "", "b", `"2"`},
			{"1", "", "b", `"2"`},
			{`"7"`, "", "", `"7"`},
			{"*", "", "", `"2"`},
			{`"*"`, "", "", `"2"`},
			{"", "Fri, 31 Dec 1999 23:59:59 GMT", "a b", `"2"`},
			{"", "Sat, 01 Jan 2000 00:00:00 GMT", "b", `"2"`}, // exclusive
			{"", "Sat, 01 Jan 2000 00:00:05 UTC", "b", `"2"`},
			{"", "Sat, 01 Jan 2000 00:00:10 GMT", "", `"2"`},
			{"", "Sat, 01 Jan 2050 00:00:00 GMT", "", `"2"`},
			{"", "Mon, 01 Jan 0001 00:00:00 GMT", "a b", `"2"`},
			{`"0"`, "Sat, 01 Jan 2000 00:00:05 GMT", "a b", `"2"`}, // the ETag counts
			{`"1"`, "Fri, 31 Dec 1999 23:59:59 GMT", "b", `"2"`},
			{"*", "Fri, 31 Dec 1999 23:59:59 GMT", "", `"2"`},
		} {
			ids, next := w.walk(t, feedOf("if-none-match", test.etag, "if-modified-since", test.since))
			if ids != test.ids || next != test.next {
				t.Errorf("from %q since %q: %q up to %s, want %q up to %s", test.etag, test.since, ids, next, test.ids,
					test.next)
			}
		}
	})
}

func TestFeedRefuses(t *testing.T) {
	w, cont := newContainer(t, Options{})
	kept := w.create(t, "db",
		`{"id":"kept","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"changeFeedPolicy":{"retentionDuration":5}}`, nil)
	if kept.Spec().Retention == 0 {
		t.Fatal("the container keeps no versions")
	}
	all := []string{"a-im", "Full-Fidelity Feed", "x-ms-cosmos-changefeed-wire-format-version", wire.WireFormat}
	for _, test := range []struct {
		path    string
		headers []string
		status  int
		sub     string
		message string
	}{
		{"c", []string{"a-im", "Incremental Full-Fidelity Feed"}, 400, "0", "A-IM"},
		{"c", []string{"if-none-match", `"x"`}, 400, "0", "If-None-Match"},
		{"c", []string{"if-none-match", `-1`}, 400, "0", "If-None-Match"},
		{"c", []string{"if-none-match", `""`}, 400, "0", "If-None-Match"},
		{"c", []string{"if-modified-since", "yesterday"}, 400, "0", "If-Modified-Since"},
		{"c", []string{"if-modified-since", "Sat, 01 Jan 2000 00:00:00 CET"}, 400, "0", "If-Modified-Since"},
		{"c", []string{"x-ms-max-item-count", "-2"}, 400, "0", "x-ms-max-item-count"},
		{"c", []string{"x-ms-max-item-count", "many"}, 400, "0", "x-ms-max-item-count"},
		{"c", []string{"x-ms-max-item-count", "2147483648"}, 400, "0", "x-ms-max-item-count"},
		{"c", []string{"x-ms-cosmos-max-polling-interval", "soon"}, 400, "0", "polling-interval"},
		{"c", []string{"x-ms-cosmos-max-polling-interval", "-1"}, 400, "0", "polling-interval"},
		{"c", []string{"x-ms-documentdb-partitionkeyrangeid", "7"}, 410, "1002", "doesn't exist"},
		{"c", []string{"x-ms-documentdb-partitionkeyrangeid", "other,0"}, 400, "0", "resource id"},
		{"c", []string{"x-ms-start-epk", "xyz"}, 400, "0", "x-ms-start-epk"},
		{"c", []string{"x-ms-start-epk", "20", "x-ms-end-epk", "10"}, 400, "0", "below"},
		{"c", []string{"x-ms-end-epk", "FFFF"}, 410, "1002", "FFFF"},
		{"c", []string{"x-ms-documentdb-partitionkey", `p`}, 400, "0", "partition key"},
		{"c", []string{"x-ms-documentdb-partitionkey", `["p","q"]`}, 400, "1001", "components"},
		{"c", []string{"x-ms-session-token", `0:-1#99`}, 404, "1002", "session"},
		{"c", []string{"x-ms-cosmos-changefeed-wire-format-version", "1"}, 400, "0", "wire-format"},
		{"c", append(all, "if-none-match", "*"), 400, "0", "changeFeedPolicy"},
		{"kept", []string{"a-im", "full-fidelity feed", "if-none-match", "*"}, 400, "0", "wire-format"},
		{"kept", all, 400, "0", "beginning"},
		{"kept", append(all, "if-modified-since", "Sat, 01 Jan 2000 00:00:00 GMT"), 400, "0", "time"},
		{"none", nil, 404, "0", ""},
	} {
		code := map[int]string{400: "BadRequest", 404: "NotFound", 410: "Gone"}[test.status]
		a := w.do(t, "GET", "/dbs/db/colls/"+test.path+"/docs", feedOf(test.headers...), "")
		if m := a.refused(t, test.status, test.sub, code); !strings.Contains(m, test.message) {
			t.Errorf("%v: %q does not tell of %q", test.headers, m, test.message)
		}
	}
	for _, id := range []string{"0", cont.RID() + ",0"} {
		w.do(t, "GET", docs, feedOf("x-ms-documentdb-partitionkeyrangeid", id), "").want(t, 304)
	}
	w.do(t, "GET", docs, map[string]string{"a-im": "INCREMENTAL FEED", "x-ms-unknown": "1"}, "").want(t, 304)
}

// newRanges is a server with container c of database db, in four ranges, with the items
// p/a, q/b, r/c, s/d, t/e.
func newRanges(t testing.TB, o Options) (*world, *docstore.Container) {
	t.Helper()
	w, cont := newContainer(t, o)
	for _, id := range []string{"0", "1", "2"} {
		if _, err := cont.Split(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	upsert(t, cont, "p/a", "q/b", "r/c", "s/d", "t/e")
	return w, cont
}

func TestFeedSelections(t *testing.T) {
	w, cont := newRanges(t, Options{})
	parts, err := cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, err := cont.LogicalPartition(`["p"]`)
	if err != nil {
		t.Fatal(err)
	}
	at := key.Range()
	total := 0
	for _, p := range parts {
		ids, _ := w.walk(t, feedOf("x-ms-documentdb-partitionkeyrangeid", p.ID))
		total += len(strings.Fields(ids))
		// A key that lies elsewhere has nothing here; it is filtered, not refused.
		own, etag := w.walk(t, feedOf("x-ms-documentdb-partitionkeyrangeid", p.ID, "x-ms-documentdb-partitionkey",
			`["p"]`))
		if want := map[bool]string{true: "a"}[p.Range.Holds(at.Min)]; own != want || etag != `"5"` {
			t.Errorf("range %s has %q of key p up to %s, want %q up to 5", p.ID, own, etag, want)
		}
		sub, _ := w.walk(t, feedOf("x-ms-documentdb-partitionkeyrangeid", p.ID, "x-ms-start-epk", p.Range.Min,
			"x-ms-end-epk", p.Range.Max,
			"x-ms-read-key-type", "EffectivePartitionKeyRange"))
		if sub != ids {
			t.Errorf("keys %s have %q, want %q as range %s", p.Range, sub, ids, p.ID)
		}
		if p.Range.Holds(at.Min) {
			one, _ := w.walk(t, feedOf("x-ms-documentdb-partitionkeyrangeid", p.ID, "x-ms-start-epk",
				strings.ToLower(at.Min), "x-ms-end-epk", at.Max))
			if one != "a" {
				t.Errorf("keys %s have %q, want a", at, one)
			}
		}
	}
	if total != 5 {
		t.Errorf("all ranges have %d items, want 5", total)
	}
	if ids, _ := w.walk(t, feedOf("x-ms-documentdb-partitionkey", `["p"]`)); ids != "a" {
		t.Errorf("key p has %q", ids)
	}
	w.do(t, "GET", docs, feedOf(), "").refused(t, 400, "0", "BadRequest")
	first, last := parts[0], parts[len(parts)-1]
	w.do(t, "GET", docs, feedOf("x-ms-documentdb-partitionkeyrangeid", first.ID, "x-ms-end-epk", last.Range.Min),
		"").refused(t, 410, "1002", "Gone")
	w.do(t, "GET", docs, feedOf("x-ms-start-epk", first.Range.Min, "x-ms-end-epk", last.Range.Min), "").refused(t, 410,
		"1002", "Gone")
}

func TestFeedOfPartOfAHierarchicalKey(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk","/id"],"kind":"MultiHash","version":2}}`, nil)
	upsert(t, cont, "p/a", "q/b", "p/c")
	for _, test := range []struct{ key, ids string }{{`["p"]`, "a c"}, {`["p","c"]`, "c"}, {`["p","b"]`, ""}} {
		if ids, _ := w.walk(t, feedOf("x-ms-documentdb-partitionkey", test.key)); ids != test.ids {
			t.Errorf("key %s has %q, want %q", test.key, ids, test.ids)
		}
	}
}

// get is a read over a connection; a fault or 304 has no ids.
func get(t *testing.T, server *httptest.Server, headers map[string]string) (status int, header http.Header,
	body string,
) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+docs, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Authorization", sign(t, wellKnownKey, r))
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestFeedThroughASplitAndAMerge(t *testing.T) {
	w, cont := newContainer(t, Options{})
	server := httptest.NewServer(w)
	defer server.Close()
	upsert(t, cont, "p/a", "q/b")
	inRange := func(id, etag string) map[string]string {
		return feedOf("x-ms-documentdb-partitionkeyrangeid", id, "if-none-match", etag, "x-ms-max-item-count", "1")
	}
	status, header, body := get(t, server, inRange("0", `"0"`))
	if status != 200 || !strings.Contains(body, `"id":"a"`) {
		t.Fatalf("before the split: %d %s", status, body)
	}
	etag := header.Get("etag")
	made, err := cont.Split(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	upsert(t, cont, "p/c", "q/d")
	status, header, body = get(t, server, inRange("0", etag))
	if status != 410 || header.Get("x-ms-substatus") != "1002" || !strings.Contains(body, `"code":"Gone"`) {
		t.Fatalf("the parent answers %d/%s %s, want 410/1002", status, header.Get("x-ms-substatus"), body)
	}
	seen := map[string]int{}
	read := func(id, from string) (end string) {
		for {
			status, header, body := get(t, server, inRange(id, from))
			from = header.Get("etag")
			if status == 304 {
				return from
			}
			for _, item := range []string{"a", "b", "c", "d", "e"} {
				seen[item] += strings.Count(body, `"id":"`+item+`"`)
			}
		}
	}
	ends := []string{read(made[0].ID, etag), read(made[1].ID, etag)}
	if want := map[string]int{"a": 0, "b": 1, "c": 1, "d": 1, "e": 0}; !maps.Equal(seen, want) {
		t.Errorf("the children have %v behind the parent's ETag, want %v", seen, want)
	}
	merged, err := cont.Merge(t.Context(), made[0].ID, made[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	upsert(t, cont, "p/e")
	if status, _, _ := get(t, server, inRange(made[1].ID, ends[1])); status != 410 {
		t.Errorf("a merged range answers %d, want 410", status)
	}
	clear(seen)
	read(merged.ID, ends[0])
	if want := map[string]int{"a": 0, "b": 0, "c": 0, "d": 0, "e": 1}; !maps.Equal(seen, want) {
		t.Errorf("the merged range has %v, want %v", seen, want)
	}
}

// A reader of one key in ranges that do not have it moves on, also where they are several.
func TestAKeyThatIsInNoneOfSeveralRangesHasNoChanges(t *testing.T) {
	w, cont := newRanges(t, Options{})
	parts, err := cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	place, err := cont.Locate(t.Context(), feed.Key("p"))
	if err != nil {
		t.Fatal(err)
	}
	bound, without := "x-ms-end-epk", parts[1].Range.Max // the first two of four
	if place < without {
		bound, without = "x-ms-start-epk", parts[2].Range.Min
	}
	for _, wait := range []string{"0", "1"} {
		headers := feedOf("x-ms-documentdb-partitionkey", `["p"]`, bound, without, "x-ms-cosmos-max-polling-interval",
			wait)
		a := w.do(t, "GET", docs, headers, "")
		if a.want(t, http.StatusNotModified); a.header.Get("etag") == "" {
			t.Error("there is no ETag to go on from")
		}
	}
}

func TestFeedPolls(t *testing.T) {
	poll := feedOf("if-none-match", "*", "x-ms-cosmos-max-polling-interval", "10000")
	for _, test := range []struct {
		name    string
		headers map[string]string
		cancel  bool
		write   string
		split   bool
		status  int
		took    time.Duration
		etag    string
	}{
		{"nothing comes", poll, false, "", false, 304, 10 * time.Second, `"1"`},
		{"something comes", poll, false, "p/b", false, 200, time.Second, `"2"`},
		{"of another key", feedOf("if-none-match", `"1"`, "x-ms-documentdb-partitionkey", `["q"]`,
			"x-ms-cosmos-max-polling-interval", "10000"), false, "p/b", false, 304, 10 * time.Second, `"2"`},
		{"the key is elsewhere", feedOf("if-none-match", `"1"`, "x-ms-documentdb-partitionkey", `["q"]`, "x-ms-end-epk",
			"00", "x-ms-cosmos-max-polling-interval", "10000"), false, "", false, 304, 10 * time.Second, `"1"`},
		{"there is something", feedOf("x-ms-cosmos-max-polling-interval", "10000"), false, "", false, 200, 0, `"1"`},
		{
			"no wish to wait", feedOf("if-none-match", "*", "x-ms-cosmos-max-polling-interval", "0"), false, "", false,
			304, 0, `"1"`,
		},
		{
			"longer than allowed", feedOf("if-none-match", "*", "x-ms-cosmos-max-polling-interval", "2000000000"),
			false,
			"", false, 304, wire.MaxPolling, `"1"`,
		},
		{"the server ends", poll, true, "", false, 304, time.Second, `"1"`},
		{"a split", poll, false, "", true, 410, time.Second, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, cont := newContainer(t, Options{})
				upsert(t, cont, "p/a")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var other sync.WaitGroup
				defer other.Wait()
				other.Go(func() {
					time.Sleep(time.Second)
					if test.write != "" {
						upsert(t, cont, test.write)
					}
					if test.split {
						if _, err := cont.Split(ctx, "0"); err != nil {
							t.Error(err)
						}
					}
					if test.cancel {
						cancel()
					}
				})
				r := httptest.NewRequestWithContext(ctx, "GET", docs, nil)
				r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
				r.Header.Set("Authorization", sign(t, w.key, r))
				for name, value := range test.headers {
					r.Header.Set(name, value)
				}
				rec := httptest.NewRecorder()
				begun := time.Now()
				w.ServeHTTP(rec, r)
				if took := time.Since(begun); rec.Code != test.status || took != test.took ||
					received(t, rec).Get("etag") != test.etag {
					t.Errorf("answered %d with ETag %s after %v, want %d with %s after %v", rec.Code,
						received(t, rec).Get("etag"), took, test.status, test.etag, test.took)
				}
			})
		})
	}
}
