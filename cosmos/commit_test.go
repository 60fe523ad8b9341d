package cosmos_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestAWrongBatchIsNotSent names the write that is wrong, which the service would not.
func TestAWrongBatchIsNotSent(t *testing.T) {
	fine := feed.Write{Body: json.RawMessage(`{"id":"fine","pk":"k"}`)}
	for want, wrong := range map[string]feed.Write{
		"body is not JSON, at byte 1: unexpected end": {Body: json.RawMessage(`{`)},
		"body is [1]":              {Body: json.RawMessage(`[1]`)},
		"id is 7":                  {Body: json.RawMessage(`{"id":7,"pk":"k"}`)},
		"document has no id":       {Body: json.RawMessage(`{"pk":"k"}`)},
		"of 1024 bytes":            {Op: feed.WriteRead, ID: strings.Repeat("x", 1024)},
		`want "b"`:                 {ID: "b", Body: json.RawMessage(`{"id":"a","pk":"k"}`)},
		`item "a" is ["o"]`:        {Body: json.RawMessage(`{"id":"a","pk":"o"}`)},
		`item "b" is [{}]`:         {Body: json.RawMessage(`{"id":"b","pk":{"k":"k"}}`)},
		"patch has 0 steps":        {Op: feed.WritePatch, ID: "a"},
		"operation is WriteOp(9)":  {Op: 9, ID: "a"},
		`(Delete ""): bad request`: {Op: feed.WriteDelete},
		`(Read "\xff"): bad`:       {Op: feed.WriteRead, ID: "\xff"},
	} {
		a := &account{trouble: refuse(0, 0)}
		_, err := a.open(t, cosmos.Options{}).Commit(t.Context(), feed.Key("k"), []feed.Write{fine, wrong})
		refused, ok := errors.AsType[*feed.WriteError](err)
		if !ok || refused.Index != 1 || !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), want) ||
			len(a.asked) != 0 {
			t.Errorf("%v after %d requests, want a bad request of write 1 with %s", err, len(a.asked), want)
		}
	}
}

// TestWhatABatchSends has one operation of each kind, and what becomes of the answer.
func TestWhatABatchSends(t *testing.T) {
	var body json.RawMessage
	a := &account{trouble: func(r *http.Request, _ int) (*http.Response, error) {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		return say(200,
			`[{"statusCode":201,"eTag":"\"1\"","resourceBody":{"id":"a"}},{"statusCode":201,"eTag":"\"2\""},{"statusCode":200,"eTag":"\"3\""},{"statusCode":204},{"statusCode":200,"eTag":"\"5\""}]`,
			"x-ms-session-token", "0:-1#77"), nil
	}}
	results, err := a.open(t, cosmos.Options{}).Commit(t.Context(), feed.Key("é"), []feed.Write{
		{Op: feed.WriteCreate, Body: json.RawMessage(`{"id":"a","pk":"é"}`)},
		{Body: json.RawMessage(`{"id":"b","pk":"\u00e9"}`), IfMatch: `"e"`},
		{Op: feed.WriteReplace, Body: json.RawMessage(`{"id":"c","pk":"é"}`)},
		{Op: feed.WriteDelete, ID: `d"`},
		{Op: feed.WritePatch, ID: "e", Patch: []feed.PatchOp{{Op: "set", Path: "/x", Value: json.RawMessage("null")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"operationType":"Create","resourceBody":{"id":"a","pk":"é"}},` +
		`{"operationType":"Upsert","ifMatch":"\"e\"","resourceBody":{"id":"b","pk":"\u00e9"}},` +
		`{"operationType":"Replace","id":"c","resourceBody":{"id":"c","pk":"é"}},` +
		`{"operationType":"Delete","id":"d\""},` +
		`{"operationType":"Patch","id":"e","resourceBody":{"operations":[{"op":"set","path":"/x","value":null}]}}]`
	if string(body) != want {
		t.Errorf("sent %s\nwant %s", body, want)
	}
	sent := a.log[len(a.log)-1].Header
	if got := sent.Get("x-ms-documentdb-partitionkey"); got != `["\u00e9"]` {
		t.Errorf("partition key is sent as %s", got)
	}
	for _, name := range []string{"is-batch-request", "batch-atomic", "batch-ordered"} {
		if got := sent.Get("x-ms-cosmos-" + name); got != "True" {
			t.Errorf("%s is %q, without which the batch is no transaction", name, got)
		}
	}
	for i, r := range results {
		if r.LSN != 77 || r.Created != (i < 2) { // an upsert may create, too
			t.Errorf("result %d is %+v", i, r)
		}
	}
	if string(results[0].Body) != `{"id":"a"}` || results[0].ETag != `"1"` || results[3].Body != nil {
		t.Errorf("results %+v", results)
	}
}

// TestABatchHasAllThatTheServiceTakes is at each limit, and one above it.
func TestABatchHasAllThatTheServiceTakes(t *testing.T) {
	remove := feed.Write{Op: feed.WriteDelete, ID: "a"}
	step := feed.PatchOp{Op: "set", Path: "/x", Value: json.RawMessage("1")}
	for name, most := range map[string]func(more int) []feed.Write{
		"writes": func(more int) []feed.Write { return slices.Repeat([]feed.Write{remove}, 100+more) },
		"steps": func(more int) []feed.Write {
			return []feed.Write{{Op: feed.WritePatch, ID: "a", Patch: slices.Repeat([]feed.PatchOp{step}, 10+more)}}
		},
		"bytes of an id": func(more int) []feed.Write {
			return []feed.Write{{Op: feed.WriteDelete, ID: strings.Repeat("x", 1023+more)}}
		},
	} {
		for more := range 2 {
			writes := most(more)
			a := &account{trouble: func(*http.Request, int) (*http.Response, error) {
				return say(200, "["+strings.TrimSuffix(strings.Repeat(`{"statusCode":204},`, len(writes)), ",")+"]"),
					nil
			}}
			_, err := a.open(t, cosmos.Options{}).Commit(t.Context(), feed.Key("k"), writes)
			if errors.Is(err, feed.ErrBadRequest) != (more > 0) || len(a.asked) != 1-more {
				t.Errorf("%s, and %d more: %v after %d requests", name, more, err, len(a.asked))
			}
		}
	}
}

// An answer that does not say of each write that it was made says of none.
func TestABatchWithoutAResultOfEachWriteIsNotMade(t *testing.T) {
	for _, answer := range []*http.Response{
		say(200, `[]`), say(200, `[{"statusCode":200},{"statusCode":200}]`), say(200, `{}`),
		say(207, `[{"statusCode":424}]`),
	} {
		a := &account{trouble: func(*http.Request, int) (*http.Response, error) { return answer, nil }}
		if err := write(t.Context(), a.open(t, cosmos.Options{})); err == nil {
			t.Errorf("status %d: no error", answer.StatusCode)
		}
	}
}

func TestABatchThatIsRefusedNamesTheCulprit(t *testing.T) {
	for status, want := range map[string]error{
		"409": feed.ErrConflict, "404": feed.ErrNotFound, "412": feed.ErrPrecondition,
		"400": feed.ErrBadRequest, "413": feed.ErrBadRequest, "429": feed.ErrThrottled,
	} {
		a := &account{trouble: func(*http.Request, int) (*http.Response, error) {
			return say(207, `[{"statusCode":424},{"statusCode":`+status+`,"message":"because"},{"statusCode":424}]`),
				nil
		}}
		w := feed.Write{Body: json.RawMessage(`{"id":"a","pk":"k"}`)}
		_, err := a.open(t, cosmos.Options{}).Commit(t.Context(), feed.Key("k"), []feed.Write{w, w, w})
		refused, ok := errors.AsType[*feed.WriteError](err)
		if !ok || refused.Index != 1 || refused.Write.ID != "a" || !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v of write 1", status, err, want)
		}
	}
}

// TestListedParentsAreNoPartitions has a list that still names what was split.
func TestListedParentsAreNoPartitions(t *testing.T) {
	const list = `{"PartitionKeyRanges":[{"id":"0","minInclusive":"","maxExclusive":"ff"},` +
		`{"id":"2","minInclusive":"1f","maxExclusive":"FF","parents":["0"]},{"id":"1","minInclusive":"","maxExclusive":"1F","parents":["0"]},` +
		`{"id":"3","minInclusive":"1F","maxExclusive":"2f","parents":["0","2"]},{"id":"4","minInclusive":"2f","maxExclusive":"ff","parents":["0","2"]}]}`
	a := &account{}
	items := a.open(t, cosmos.Options{})
	client, err := cosmos.Open(t.Context(), "https://g.example", cosmos.Key("a2V5"),
		cosmos.Options{Transport: transporter(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/pkranges") && r.Header.Get("If-None-Match") == "" {
				return say(200, list, "etag", "1"), nil
			}
			return a.Do(r)
		})})
	if err != nil {
		t.Fatal(err)
	}
	if items, err = client.Container(t.Context(), "db", items.ID()); err != nil {
		t.Fatal(err)
	}
	parts, err := items.Partitions(t.Context())
	if err != nil || len(parts) != 3 || parts[0].ID != "1" || parts[1].Range != (feed.Range{Min: "1F", Max: "2F"}) ||
		parts[1].Parents[0] != "0" {
		t.Errorf("partitions %+v, %v", parts, err)
	}
}

// TestAResultHasTheLSNOfItsOwnWrite: also when others write to the partition while the answer is made.
func TestAResultHasTheLSNOfItsOwnWrite(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	stored := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	items := find(t, s.client(t, master, nil), "items")
	var writers sync.WaitGroup
	for n := range 16 {
		writers.Go(func() {
			for range 40 {
				results, err := items.Commit(t.Context(), feed.Key(n),
					[]feed.Write{{Body: fmt.Appendf(nil, `{"id":"a","pk":%d}`, n)}})
				if err != nil {
					t.Error(err)
					return
				}
				it, err := stored.Item(t.Context(), feed.Key(n), "a")
				if err != nil || it.ETag != results[0].ETag || it.LSN != results[0].LSN {
					t.Errorf("%v; the item has LSN %d and ETag %s, its write was told %d and %s", err, it.LSN, it.ETag,
						results[0].LSN, results[0].ETag)
					return
				}
			}
		})
	}
	writers.Wait()
}
