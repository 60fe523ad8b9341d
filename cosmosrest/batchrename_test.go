package cosmosrest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/feed"
)

// The Python SDK's tests replace an item of a batch by an item with another id, and want the statuses of a success.
func TestAReplaceInABatchRenamesTheItem(t *testing.T) {
	const rename = `{"operationType":"Replace","id":"a","resourceBody":{"id":"b","pk":"p","v":2}}`
	w, cont := newContainer(t, Options{})
	w.item(t, "a", "")
	w.item(t, "taken", "")

	// A failure behind the rename, and of the rename itself, is told of the right operation.
	for ops, want := range map[string]string{
		rename + `,{"operationType":"Delete","id":"none"},{"operationType":"Read","id":"b"}`:              "424 404 424",
		rename + `,{"operationType":"Delete","id":"b"},{"operationType":"Delete","id":"b"}`:               "424 424 404",
		`{"operationType":"Read","id":"taken"},` + strings.Replace(rename, `"id":"b"`, `"id":"taken"`, 1): "424 409",
		`{"operationType":"Read","id":"taken"},` + strings.Replace(rename, `"id":"a"`, `"id":"none"`, 1):  "424 404",
		strings.Replace(rename, `"id":"a"`, `"id":"a","ifMatch":"\"x\""`, 1):                              "412",
	} {
		if _, got := w.send(t, "["+ops+"]").results(t, http.StatusMultiStatus); got != want {
			t.Errorf("%s: statuses %s, want %s", ops, got, want)
		}
	}
	if cont.Head() != 2 {
		t.Fatalf("a refused batch wrote something: the newest LSN is %d", cont.Head())
	}

	all, got := w.send(t, `[{"operationType":"Read","id":"a"},`+rename+`,{"operationType":"Read","id":"b"}]`).results(t,
		http.StatusOK)
	if got != "200 200 200" || !strings.Contains(string(all[1].ResourceBody), `"v":2`) || all[1].ETag != all[2].ETag {
		t.Errorf("statuses %s, results %+v", got, all)
	}
	if one := w.item(t, "c", `,"v":2`).charge(t); all[1].RequestCharge <= one {
		t.Errorf("the rename costs %v: want more than a create, which costs %v", all[1].RequestCharge, one)
	}
	w.do(t, "GET", docs+"/a", under("p"), "").refused(t, http.StatusNotFound, "0", "NotFound")
}

func TestAReplaceInABulkRenamesTheItem(t *testing.T) {
	w, cont := newContainer(t, Options{})
	w.item(t, "a", "")
	const rename = `{"operationType":"Replace","id":"a","partitionKey":"[\"p\"]","resourceBody":{"id":"b","pk":"p"}}`
	const read = `{"operationType":"Read","id":"b","partitionKey":"[\"p\"]"}`
	all := `[` + rename + `,` + rename + `,` + read + `]`
	if _, got := w.bulk(t, all).results(t, http.StatusMultiStatus); got != "200 404 200" {
		t.Errorf("statuses %s, want 200 404 200: the item has its new id after the first", got)
	}
	items := 0
	for item, err := range cont.Items(t.Context(), feed.FullRange(), "") {
		if items++; err != nil || item.ID != "b" {
			t.Errorf("item %q, %v: want the renamed one alone", item.ID, err)
		}
	}
	if items != 1 {
		t.Errorf("%d items, want 1", items)
	}
}
