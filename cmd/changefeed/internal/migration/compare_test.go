package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestCompareFindsWhatWasPlanted: a missing, a surplus and a document with another byte, and nothing else.
func TestCompareFindsWhatWasPlanted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{Ranges: 2})
	var bodies []string
	for i := range 400 {
		bodies = append(bodies, order(fmt.Sprint(i), fmt.Sprintf("city %d", i%9), fmt.Sprintf("c%d", i%40), i))
	}
	w.put("orders", bodies...)
	w.put("copies", bodies...)
	if found, err := w.compare(nil); err != nil || len(found) > 0 {
		t.Fatalf("copies of all documents differ: %+v, %v", found, err)
	}
	w.remove("copies", "c7", "7")
	w.put("copies", order("400", "city 1", "c3", 1), strings.Replace(bodies[9], "city 0", "city O", 1))
	found, err := w.compare(nil)
	want := []Difference{
		{What: different, Key: `["c9"]`, ID: "9", ItemKey: `["city 0"]`, Item: "9"},
		{What: missing, Key: `["c7"]`, ID: "7", ItemKey: `["city 7"]`, Item: "7"},
		{What: surplus, Key: `["c3"]`, ID: "400"},
	}
	if !slices.Equal(found, want) || err == nil {
		t.Errorf("found %+v, %v, want %+v", found, err, want)
	}
	few, err := w.compare(func(c *Compare) { c.Most = 1 })
	if len(few) != 1 || err == nil || !strings.Contains(err.Error(), "3 documents") {
		t.Errorf("with --most 1: %+v, %v", few, err)
	}
	if found, err := w.compare(func(c *Compare) { c.Repair = true }); err != nil || len(found) > 0 {
		t.Errorf("after the repair: %+v, %v", found, err)
	}
}

// TestCompareLooksAgain: an item that the copy has not reached yet is no difference once the target has it.
func TestCompareLooksAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 2))
	w.put("copies", order("1", "Oslo", "ada", 1), order("2", "Oslo", "bob", 1))
	opened, err := w.pair.open(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.close()
	m, err := w.pair.mapper(opened)
	if err != nil {
		t.Fatal(err)
	}
	flags := &Compare{Pair: w.pair, Most: 9, Patience: time.Minute}
	c := &comparison{Compare: flags, copier: newCopier(opened, m, 2)}
	c.Report = report.New(report.Text, &w.out)
	late := func() error { // the copy comes while the comparison looks again
		ctx := context.Background()
		if _, err := opened.target.Local.Upsert(ctx, []byte(order("1", "Oslo", "ada", 2))); err != nil {
			return err
		}
		return opened.target.Local.Delete(ctx, feed.Key("bob"), "2", "")
	}
	looks := make(chan error, 1)
	places := map[spot]*both{
		{`["ada"]`, "1"}: {
			target: &record{Key: `["ada"]`, ID: "1"},
			source: []record{
				{Key: `["ada"]`, ID: "1", IsSource: true, ItemKey: `["Oslo"]`, Item: "1", Print: print{1}},
			},
		},
		{`["bob"]`, "2"}: {target: &record{Key: `["bob"]`, ID: "2"}},
	}
	go func() { looks <- late() }()
	if err := c.settle(t.Context(), places); err != nil {
		t.Fatal(err)
	}
	if err := <-looks; err != nil || c.result.differing() > 0 {
		t.Errorf("%v, %+v", err, c.result)
	}
	for at, b := range places {
		if !b.isSame() {
			t.Errorf("%v is not the same: %+v", at, b)
		}
	}
}

// TestFingerprints: the same values have the same print in any form, and others have not.
func TestFingerprints(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		one, other string
		same       bool
	}{
		{`{"a":1,"b":[1, 2]}`, ` { "a" : 1 , "b":[1,2]}`, true},
		{`{"a":1,"_ts":5,"_etag":"x"}`, `{"a":1}`, true},
		{`{"a":{"_ts":5}}`, `{"a":{}}`, false},
		{`{"a":1.0}`, `{"a":1}`, true},
		{`{"a":1.50e2}`, `{"a":150}`, true},
		{`{"a":-0.0}`, `{"a":0}`, true},
		{`{"a":-0}`, `{"a":0}`, true},
		{`{"a":1e30}`, `{"a":1E+30}`, true},
		{`{"a":0.1}`, `{"a":1e-1}`, true},
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":-5}`, `{"a":5}`, false},
		{`{"a":-1.5}`, `{"a":1.5}`, false},
		{`{"a":-1.50}`, `{"a":-15E-1}`, true},
		{`{"a":1e-3}`, `{"a":1e-4}`, false},
		{`{"a":"é"}`, `{"a":"\u00e9"}`, true},
		{`{"a":"\ud800"}`, `{"a":"\ufffd"}`, false},
		{`{"a":"x"}`, `{"a":"X"}`, false},
		{`{"a":null}`, `{}`, false},
		{`{"a":true}`, `{"a":false}`, false},
		{`{"a":[[1],2]}`, `{"a":[[1,2]]}`, false},
		{`{"ttl":1,"a":1}`, `{"ttl":2,"a":1}`, true},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, false},
	} {
		if same := fingerprint([]byte(tt.one), true) == fingerprint([]byte(tt.other), true); same != tt.same {
			t.Errorf("%s and %s: same is %v, want %v", tt.one, tt.other, same, tt.same)
		}
	}
}

// TestAnswersOfATransform: each document needs an answer, and every other answer than documents or null is an error.
func TestAnswersOfATransform(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want string // of two documents; the beginning of an error
	}{
		{"{\"id\":\"1\"}\n{\"id\":\"2\"}\n", `[{"id":"1"}] [{"id":"2"}]`},
		{"[{\"id\":\"1\"},{\"id\":\"3\"}]\r\nnull", `[{"id":"1"} {"id":"3"}] []`},
		{"[]\n[ ]\n", "[] []"},
		{"", "the transform has written no line"},
		{"{}\n", "the transform has written no line"},
		{"{}\n\n", "the transform has written no line"},
		{"{}\n{}\n{}\n", "the transform has written 3 lines for 2 documents"},
		{"{}\n5\n", "the transform has written 5"},
		{"{}\n[5]\n", "the transform has written an array with 5"},
		{"{}\nfalse\n", "the transform has written false"},
		{"{}\n{\"id\"\n", `the transform has written "{\"id\"": want JSON`},
	} {
		out := make([]output, 2)
		got := ""
		if err := readAnswers([]byte(tt.text), out); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%s %s", out[0].documents, out[1].documents)
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q: got %s, want %s", tt.text, got, tt.want)
		}
	}
}

// TestATransformNamesTheDocumentAtFault: the program fails on one document, and the others are transformed.
func TestATransformNamesTheDocumentAtFault(t *testing.T) {
	t.Parallel()
	f := shellTransform(t,
		`while read -r l; do case "$l" in *bad*) echo no >&2; exit 3;; esac; echo "$l"; done`)
	var bodies [][]byte
	for i := range 20 {
		bodies = append(bodies, fmt.Appendf(nil, `{"id":"%d"}`, i))
	}
	bodies[13] = []byte(`{"id":"bad"}`)
	out := make([]output, len(bodies))
	if err := f.run(t.Context(), bodies, out); err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if (i == 13) != (o.err != nil) || i != 13 && string(o.documents[0]) != string(bodies[i]) {
			t.Errorf("document %d: %s, %v", i, o.documents, o.err)
		}
	}
	if text := out[13].err.Error(); text != "the transform fails: exit status 3: no" {
		t.Errorf("the error is %s", text)
	}
}

// TestRecordsKeepEverything: a record is read as it was written.
func TestRecordsKeepEverything(t *testing.T) {
	t.Parallel()
	files, err := newRecords()
	if err != nil {
		t.Fatal(err)
	}
	defer files.remove()
	want := map[string]record{}
	for i := range 2000 {
		r := record{
			Key: feed.Key(i % 50), ID: fmt.Sprint(i), Print: print{byte(i), 15: 1}, Expires: int64(i),
			IsSource: i%2 == 0, ItemKey: feed.Key(strings.Repeat("k", i%300)), Item: "é", LSN: int64(i) << 20,
		}
		want[r.ID] = r
		if err := files.add(r); err != nil {
			t.Fatal(err)
		}
	}
	for i := range files.buckets {
		if err := files.each(i, func(r record) {
			if want[r.ID] != r {
				t.Errorf("got %+v, want %+v", r, want[r.ID])
			}
			delete(want, r.ID)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(want) > 0 {
		t.Errorf("%d records are missing", len(want))
	}
}
