package items

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// newContainer makes a container in a new store, with a document.
func newContainer(t *testing.T) (*place.Opener, place.Address, *Target, Document) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store") // before the cleanup, which comes first then
	o := place.NewOpener(place.Settings{})
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	at := place.Address{Dir: dir, Database: docstore.DefaultDatabase, Container: "orders"}
	remake(t, o, at)
	target, err := Open(t.Context(), o, at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Put(t.Context(), []byte(`{"id":"1"}`), Write{}); err != nil {
		t.Fatal(err)
	}
	d, err := target.Place([]byte(`{"id":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	return o, at, target, d
}

// remake makes a container that does not exist.
func remake(t *testing.T, o *place.Opener, at place.Address) {
	t.Helper()
	w := place.Wanted{
		Spec: docstore.ContainerSpec{Paths: []string{"/id"}, Ranges: 1}, Given: func(string) bool { return false },
	}
	if _, isNew, err := o.MakeNew(t.Context(), at, w, false); err != nil || !isNew {
		t.Fatal(isNew, err)
	}
}

func TestOnlyTheVersionOfTheQuestionIsDeleted(t *testing.T) {
	_, _, target, d := newContainer(t)
	etag, err := target.Find(t.Context(), d, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Put(t.Context(), []byte(`{"id":"1","n":2}`), Write{}); err != nil {
		t.Fatal(err)
	}
	if _, err := target.Delete(t.Context(), d, etag); err == nil ||
		!strings.Contains(err.Error(), "was changed meanwhile, so nothing was deleted") {
		t.Errorf("got %v", err)
	}
	if etag, err = target.Find(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := target.Delete(t.Context(), d, etag); err != nil {
		t.Errorf("the version of the question: %v", err)
	}
}

func TestAConditionIsComparedBeforeAnybodyIsAsked(t *testing.T) {
	_, _, target, d := newContainer(t)
	etag, err := target.Find(t.Context(), d, "")
	if err != nil {
		t.Fatal(err)
	}
	for ifMatch, want := range map[string]bool{
		"*": true, etag: true, strings.Trim(etag, `"`): true, `"wrong"`: false, "wrong": false,
	} {
		_, err := target.Find(t.Context(), d, ifMatch)
		if (err == nil) != want || err != nil && !errors.Is(err, ErrOtherETag) {
			t.Errorf("%s: got %v, want a match: %v", ifMatch, err, want)
		}
	}
}

func TestOnlyTheContainerOfTheQuestionIsDropped(t *testing.T) {
	o, at, _, _ := newContainer(t)
	described, err := List(t.Context(), o, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := Drop(t.Context(), o, at, described[0]); err != nil {
		t.Fatal(err)
	}
	remake(t, o, at)
	if err := Drop(t.Context(), o, at, described[0]); !errors.Is(err, ErrReplaced) {
		t.Errorf("got %v, want %v", err, ErrReplaced)
	}
	if _, err := o.Open(t.Context(), at); err != nil {
		t.Errorf("the new container: %v", err)
	}
}

func TestAPageHasAsManyRowsAsItSays(t *testing.T) {
	_, _, target, _ := newContainer(t)
	for page, want := range map[string]bool{
		`{"Documents":[1,2],"_count":2}`: true,
		`{"Documents":[],"_count":0}`:    true,
		`{"Documents":[1],"_count":2}`:   false,
		`{"Documents":{},"_count":1}`:    false,
		`{"Documents":[1],"_count":"1"}`: false,
	} {
		if err := target.checkPage([]byte(page)); (err == nil) != want {
			t.Errorf("%s: got %v, want it taken: %v", page, err, want)
		}
	}
}

func TestTheNameOfAContainerControlsNoTerminal(t *testing.T) {
	row := Container{Name: "d/a\x1b[2J", Paths: []string{"/b\a"}}.Row()
	if got := strings.Join(row, " "); strings.ContainsAny(got, "\x1b\a") || !strings.HasPrefix(got, "d/a") {
		t.Errorf("got %q", got)
	}
}

// A key with more values than the container has paths is in no document. A key with fewer is the beginning of keys.
func TestAKeyHasNoMoreValuesThanTheContainerHasPaths(t *testing.T) {
	deep := &place.Container{Paths: []string{"/tenant", "/user"}}
	for key, want := range map[feed.PartitionKey]string{
		"": "", feed.Key("a"): "", feed.Key("a", "b"): "",
		feed.Key("a", "b", "c"): `--key is ["a","b","c"]: want 2 values, of /tenant,/user, such as --key '["…","…"]'`,
	} {
		if err := CheckPrefix(deep, key); (err != nil) != (want != "") || err != nil && err.Error() != want {
			t.Errorf("%q: got %v, want %q", key, err, want)
		}
	}
	if err := CheckPrefix(&place.Container{}, feed.Key("a", "b")); err != nil {
		t.Errorf("of a container whose paths are not known: %v", err)
	}
}
