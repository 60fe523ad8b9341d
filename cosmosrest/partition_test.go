package cosmosrest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/feed"
)

var follow = map[string]string{"A-IM": "Incremental Feed", "x-ms-max-item-count": "-1"}

// rangesIn are the partitions of a feed, in its order.
func rangesIn(t *testing.T, a answer) []feed.Partition {
	t.Helper()
	a.list(t, "PartitionKeyRanges")
	var listed struct {
		PartitionKeyRanges []struct {
			ID, MinInclusive, MaxExclusive, Status string
			RID                                    string `json:"_rid"`
			Parents                                []string
			ThroughputFraction                     float64
			LSN                                    int64 `json:"_lsn"`
			TS                                     int64 `json:"_ts"`
		}
	}
	a.into(t, &listed)
	var parts []feed.Partition
	for _, r := range listed.PartitionKeyRanges {
		if r.Status != "online" || r.Parents == nil || r.ThroughputFraction <= 0 || len(r.RID) != 24 || r.TS == 0 {
			t.Errorf("range %+v", r)
		}
		parts = append(parts, feed.Partition{
			ID: r.ID, Range: feed.Range{Min: r.MinInclusive, Max: r.MaxExclusive},
			Parents: r.Parents,
		})
	}
	return parts
}

// idsOf are the ids of partitions that must tile the key space.
func idsOf(t *testing.T, parts []feed.Partition) string {
	t.Helper()
	var ids []string
	at := ""
	for _, p := range parts {
		if p.Range.Min != at {
			t.Errorf("range %s of %s does not begin at %q", p.Range, p.ID, at)
		}
		at = p.Range.Max
		ids = append(ids, p.ID)
	}
	if at != "FF" {
		t.Errorf("the last range ends at %q", at)
	}
	return strings.Join(ids, " ")
}

func TestRangesAreFollowed(t *testing.T) {
	w, cont := newContainer(t, Options{})
	for _, path := range []string{"/dbs/db/colls/c/pkranges", "/" + cont.Self() + "pkranges/"} {
		first := w.do(t, "GET", path, follow, "")
		if ids := idsOf(t, rangesIn(t, first)); ids != "0" || first.object(t)["_rid"] != cont.RID() {
			t.Errorf("%s: %s", path, first.body)
		}
		etag := first.header.Get("etag")
		for _, have := range []string{etag, strings.Trim(etag, `"`)} {
			same := w.do(t, "GET", path, map[string]string{"A-IM": "Incremental feed", "If-None-Match": have},
				"").want(t, http.StatusNotModified)
			if same.header.Get("etag") != etag || len(same.body) > 0 {
				t.Errorf("%s: not modified since %s, ETag %s, body %q", path, have, same.header.Get("etag"), same.body)
			}
		}
		if plain := w.do(t, "GET", path, map[string]string{"If-None-Match": etag}, ""); idsOf(t,
			rangesIn(t, plain)) != "0" {
			t.Errorf("%s without A-IM: %s", path, plain.body)
		}
	}
	w.do(t, "GET", "/dbs/db/colls/none/pkranges", follow, "").refused(t, http.StatusNotFound, "0", "NotFound")
}

func TestRangesOfAContainerThatIsMadeAnewAreOthers(t *testing.T) {
	w, _ := newContainer(t, Options{})
	etag := w.do(t, "GET", "/dbs/db/colls/c/pkranges", follow, "").header.Get("etag")
	w.do(t, "DELETE", "/dbs/db/colls/c", nil, "").want(t, http.StatusNoContent)
	w.create(t, "db", smallContainer, nil)
	w.do(t, "GET", "/dbs/db/colls/c/pkranges", map[string]string{"A-IM": "Incremental Feed", "If-None-Match": etag},
		"").want(t, http.StatusOK)
}

// combine is what a client makes of the partitions it knows and those that are new.
func combine(known, more []feed.Partition) []feed.Partition {
	byID := map[string]feed.Partition{}
	for _, p := range slices.Concat(known, more) {
		byID[p.ID] = p
	}
	for _, p := range more {
		for _, parent := range p.Parents {
			delete(byID, parent)
		}
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b feed.Partition) int {
		return strings.Compare(a.Range.Min, b.Range.Min)
	})
}

func TestSplitsAndMerges(t *testing.T) {
	w, _ := newContainer(t, Options{})
	const ranges, admin = "/dbs/db/colls/c/pkranges", "/dbs/db/colls/c/partitions"
	begin := w.do(t, "GET", ranges, follow, "")
	first := begin.header.Get("etag")
	known, etag := rangesIn(t, begin), first
	for _, step := range []struct {
		body, made, all string
		parents         []string // of the first one made
	}{
		{`{"operation":"split","id":"0"}`, "1 2", "1 2", []string{"0"}},
		{`{"operation":"split","id":"2","at":"30"}`, "3 4", "1 3 4", []string{"0", "2"}},
		{`{"operation":"split","id":"1","at":"0f"}`, "5 6", "5 6 3 4", []string{"0", "1"}},
		{`{"operation":"merge","ids":["6","3"]}`, "7", "5 7 4", []string{"0", "1", "6", "2", "3"}},
	} {
		done := w.do(t, "POST", admin, nil, step.body)
		made := rangesIn(t, done)
		if ids := column(t, done.list(t, "PartitionKeyRanges"), "id"); ids != step.made {
			t.Errorf("%s made %s, want %s", step.body, ids, step.made)
		}
		slices.Sort(step.parents)
		slices.Sort(made[0].Parents)
		if !slices.Equal(made[0].Parents, step.parents) {
			t.Errorf("%s: parents %v, want %v", step.body, made[0].Parents, step.parents)
		}
		now := w.do(t, "GET", ranges, map[string]string{"A-IM": "Incremental Feed", "If-None-Match": etag}, "")
		if ids := column(t, now.list(t, "PartitionKeyRanges"), "id"); ids != step.made {
			t.Errorf("%s: new since %s are %s, want %s", step.body, etag, ids, step.made)
		}
		for name, from := range map[string]string{
			"all": "", "since the beginning": first,
			"since another container": `"x.5"`,
		} {
			known = combine(known, rangesIn(t, w.do(t, "GET", ranges, map[string]string{
				"A-IM":          "Incremental Feed",
				"If-None-Match": from,
			}, "")))
			if ids := idsOf(t, known); ids != step.all {
				t.Errorf("%s: %s, then there are %s, want %s", step.body, name, ids, step.all)
			}
		}
		if now.header.Get("etag") == etag || now.header.Get("etag") != done.header.Get("etag") {
			t.Errorf("%s: ETag %s, the answer's is %s", step.body, now.header.Get("etag"), done.header.Get("etag"))
		}
		etag = now.header.Get("etag")
	}
}

func TestRangesInPages(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "50000"})
	headers := map[string]string{"x-ms-max-item-count": "2"}
	var parts []feed.Partition
	for range 3 {
		page := w.do(t, "GET", "/dbs/db/colls/c/pkranges", headers, "")
		parts = append(parts, rangesIn(t, page)...)
		headers["x-ms-continuation"] = page.header.Get("x-ms-continuation")
	}
	if ids := idsOf(t, parts); ids != "0 1 2 3 4" || headers["x-ms-continuation"] != "" {
		t.Errorf("ranges %s, then continuation %q", ids, headers["x-ms-continuation"])
	}
}

func TestPartitionRefusals(t *testing.T) {
	w, _ := newContainer(t, Options{})
	const admin = "/dbs/db/colls/c/partitions"
	for _, body := range []string{
		``, `{}`, `[]`, `{"operation":"cut","id":"0"}`, `{"operation":"split"}`, `{"operation":"split","id":5}`,
		`{"operation":"merge","ids":["0"]}`,
		`{"operation":"split","id":"0","at":"XY"}`, `{"operation":"split","id":"0","at":"F"}`,
		`{"operation":"split","id":"0","at":"FF"}`,
	} {
		w.do(t, "POST", admin, nil, body).refused(t, http.StatusBadRequest, "0", "BadRequest")
	}
	w.do(t, "POST", admin, nil, `{"operation":"split","id":"9"}`).refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "POST", admin, nil, `{"operation":"merge","ids":["0","0"]}`).refused(t, http.StatusBadRequest, "0",
		"BadRequest")
	w.do(t, "POST", "/dbs/db/colls/none/partitions", nil, `{"operation":"split","id":"0"}`).refused(t,
		http.StatusNotFound, "0", "NotFound")
	w.do(t, "GET", admin, nil, "").refused(t, http.StatusMethodNotAllowed, "0", "MethodNotAllowed")
	if ids := idsOf(t, rangesIn(t, w.do(t, "GET", "/dbs/db/colls/c/pkranges", nil, ""))); ids != "0" {
		t.Errorf("refusals have left the ranges %s", ids)
	}
}
