package migration

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// shellTransform returns a transform by a shell.
func shellTransform(t *testing.T, text string) *transform {
	t.Helper()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("this needs sh")
	}
	f, err := newTransform([]string{"sh", "-c", text})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestOnlyAValueIsASoftDelete: a property that is missing, false or null deletes nothing.
func TestOnlyAValueIsASoftDelete(t *testing.T) {
	t.Parallel()
	m := &mapper{deleted: []string{"state", "deleted"}}
	for body, want := range map[string]bool{
		`{"state":{"deleted":true}}`:         true,
		`{"state":{"deleted":"2026-01-01"}}`: true,
		`{"state":{"deleted":1}}`:            true,
		`{"state":{"deleted":false}}`:        false,
		`{"state":{"deleted":null}}`:         false,
		`{"state":{}}`:                       false,
		`{"deleted":true}`:                   false,
	} {
		if got := m.isDeleted([]byte(body)); got != want {
			t.Errorf("%s: deleted is %v, want %v", body, got, want)
		}
	}
}

// TestAnotherEndOfALifeIsADifference: the target has the document with another ttl. compare finds that, and a copy
// gives the document its life.
func TestAnotherEndOfALifeIsADifference(t *testing.T) {
	t.Parallel()
	on := -1
	w := newWorld(t, docstore.ContainerSpec{DefaultTTL: &on})
	const body = `{"id":"1","city":"Oslo","customer":"ada","ttl":%d}`
	w.put("orders", fmt.Sprintf(body, 86400))
	w.put("copies", fmt.Sprintf(body, 600))
	found, err := w.compare(nil)
	if err == nil || len(found) != 1 || found[0].What != different {
		t.Errorf("compare finds %+v, %v, want one that is different", found, err)
	}
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	if found, err := w.compare(nil); err != nil || len(found) > 0 {
		t.Errorf("after the copy compare finds %+v, %v", found, err)
	}
	if got := w.all("copies")[`["ada"] 1`]; !strings.Contains(got, `"ttl":86`) {
		t.Errorf("the target has %s", got)
	}
}

// TestAConflictAloneIsADifference: a comparison that finds nothing else fails, too.
func TestAConflictAloneIsADifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 1), order("1", "Rome", "ada", 2))
	w.put("copies", order("1", "Oslo", "ada", 1))
	found, err := w.compare(nil)
	if len(found) != 1 || found[0].What != conflicting || err == nil ||
		!strings.Contains(err.Error(), "1 document of the target differs") {
		t.Errorf("compare finds %+v, %v", found, err)
	}
}

// TestSeveralDocumentsOfAnItemAreCopied: a transform makes two documents of an item, and later one of them.
func TestSeveralDocumentsOfAnItemAreCopied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	shellTransform(t, "true") // or skips
	w.pair.Transform = []string{"sh", "-c", `sed -E 's/^(.*"id":")(.*)$/[\1\2,\1b\2]/'`}
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Rome", "bob", 1))
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	w.expect(order("1", "Oslo", "ada", 1), order("b1", "Oslo", "ada", 1), order("2", "Rome", "bob", 1),
		order("b2", "Rome", "bob", 1))
	if found, err := w.compare(nil); err != nil || len(found) > 0 {
		t.Errorf("compare finds %+v, %v", found, err)
	}
}

// TestATransformGetsADocumentALine: also if the document has line breaks.
func TestATransformGetsADocumentALine(t *testing.T) {
	t.Parallel()
	out := make([]output, 2)
	bodies := [][]byte{[]byte("{\n  \"id\": \"1\",\r\n  \"a\": [ 1 ]\n}"), []byte(`{"id":"a b"}`)}
	if err := shellTransform(t, "cat").run(t.Context(), bodies, out); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`{"id":"1","a":[1]}`, `{"id":"a b"}`} {
		if out[i].err != nil || len(out[i].documents) != 1 || string(out[i].documents[0]) != want {
			t.Errorf("document %d is %s, %v, want %s", i, out[i].documents, out[i].err, want)
		}
	}
}

// TestLeasesHaveAContainerOfTheirOwn: neither side takes the leases of its own copy.
func TestLeasesHaveAContainerOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 1))
	for _, at := range []string{w.pair.Source, w.pair.Target} {
		w.copy.Leases = at
		err := w.run()
		_, isMisuse := errors.AsType[usage.Error](err)
		if !isMisuse || !strings.Contains(err.Error(), "a container of its own") {
			t.Errorf("with the leases in %s: %v", at, err)
		}
	}
	w.expect()
}
