package migration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// program writes a shell script, and returns its path.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "transform.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestARepairWithAFailingTransformDeletesNothing: if a transform changes ids, only it knows whose a document is.
func TestARepairWithAFailingTransformDeletesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 1), order("2", "Oslo", "bob", 2))
	w.put("copies", order("o-1", "Oslo", "ada", 1), order("o-2", "Oslo", "bob", 2))
	w.pair.Transform = []string{program(t, `exit 3`)}
	if _, err := w.compare(func(c *Compare) { c.Repair = true }); err == nil {
		t.Error("a failing transform was no difference")
	}
	w.expect(order("o-1", "Oslo", "ada", 1), order("o-2", "Oslo", "bob", 2))
}

// TestATransformThatFailsLater: an item that cannot be mapped when it is looked at again is not the same.
func TestATransformThatFailsLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 1))
	w.put("copies", order("1", "Oslo", "ada", 2))
	mark := filepath.Join(t.TempDir(), "mark")
	w.pair.Transform = []string{program(t, "test -e "+mark+" && exit 3\ntouch "+mark+"\ncat")}
	if found, err := w.compare(nil); err == nil || len(found) != 1 || found[0].What != uncopied {
		t.Errorf("compare finds %+v, %v", found, err)
	}
}

// TestATTLThatNeverEndsIsContent: without its ttl of -1 the document in the target would expire.
func TestATTLThatNeverEndsIsContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{DefaultTTL: new(3600)})
	w.put("orders", `{"id":"1","city":"Oslo","customer":"ada","ttl":-1}`)
	w.put("copies", `{"id":"1","city":"Oslo","customer":"ada"}`)
	if found, err := w.compare(nil); err == nil || len(found) != 1 || found[0].What != different {
		t.Errorf("compare finds %+v, %v", found, err)
	}
}

// TestARepairFindsHiddenOwners: an item that was missing when the source was read, and is there again, keeps its
// document, also if a transform hides whose it is.
func TestARepairFindsHiddenOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docstore.ContainerSpec{})
	w.put("orders", order("1", "Oslo", "ada", 1))
	w.put("copies", order("o-1", "Oslo", "ada", 1), order("o-2", "Oslo", "ada", 2))
	w.pair.Transform = []string{program(t, `sed 's/"id":"/"id":"o-/'`)}
	opened, err := w.pair.open(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := w.pair.mapper(opened)
	if err != nil {
		t.Fatal(err)
	}
	again := &comparison{Compare: &Compare{Pair: w.pair, Repair: true}, copier: newCopier(opened, m, 4)}
	all := []*candidate{
		{at: spot{feed.Key("ada"), "o-1"}, both: &both{}, hasTarget: true},
		{at: spot{feed.Key("ada"), "o-2"}, both: &both{}, hasTarget: true},
	}
	if _, err := again.repair(t.Context(), all); err != nil {
		t.Error(err)
	}
	if err := opened.close(); err != nil {
		t.Error(err)
	}
	w.expect(order("o-1", "Oslo", "ada", 1))
}
