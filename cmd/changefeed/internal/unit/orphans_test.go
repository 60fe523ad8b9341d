package unit

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// orphans finds the orphans of a name.
func (o office) orphans(t *testing.T, name string) (found []Orphan, ids []string) {
	t.Helper()
	var all []*place.Container
	for _, c := range o.db.Containers() {
		all = append(all, place.Stored(c, place.Address{Container: c.ID(), Database: c.Database()}))
	}
	found, err := Orphans(t.Context(), place.Stored(o.leases, place.Address{Container: "leases"}), all, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, orphan := range found {
		if orphan.Left == "" {
			ids = append(ids, orphan.ID)
		}
	}
	return found, ids
}

// drop deletes the monitored container, and makes another one with its name.
func (o office) drop(t *testing.T) {
	t.Helper()
	if err := o.db.DeleteContainer(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, err := o.db.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}}); err != nil {
		t.Fatal(err)
	}
}

// What a unit of a container leaves is an orphan when the container does not exist any more, and nobody has written for
// a while. Leases of containers that exist, or that may exist elsewhere, and those of other names, are none.
func TestOnlyDocumentsOfDroppedContainersAreOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.lease(t, "-1F", nil)
		o.lease(t, "1F-FF", nil)
		if _, err := o.store.Create(t.Context(), feed.Record{Kind: feed.KindInfo}); err != nil {
			t.Fatal(err)
		}
		if other, err := docstore.NewLeases(t.Context(), o.leases, "other", o.monitored); err != nil {
			t.Fatal(err)
		} else if _, err := other.Create(t.Context(), feed.Record{Kind: feed.KindInfo}); err != nil {
			t.Fatal(err)
		}
		prefix := o.store.Prefix()
		host, _, _ := strings.Cut(strings.TrimPrefix(prefix, "mailer"), "_")
		for _, id := range []string{
			"mailer" + host + "_zzzzzz==_zzzzzzzzzzz=..-FF",         // of another database
			strings.Replace(prefix, host, "elsewhere", 1) + "..-FF", // of another account
			prefix + "x..-FF", "mailer", "mailer" + host + "..-FF",
		} {
			o.put(t, o.leases, `{"id":"`+id+`"}`)
		}
		time.Sleep(time.Hour)
		if _, ids := o.orphans(t, "mailer"); len(ids) != 0 {
			t.Errorf("while the container exists, %q are orphans", ids)
		}
		o.lease(t, "-FF", func(l *feed.Record) { l.Owner, l.Epoch = "", "" })
		o.drop(t)
		time.Sleep(time.Minute)
		early, ids := o.orphans(t, "mailer")
		when := "was last written 1m ago: it can be removed at " +
			time.Now().Add(9*time.Minute).UTC().Format(time.TimeOnly)
		for _, orphan := range early {
			if left, err := orphan.Remove(t.Context(), nil); err != nil || !strings.HasSuffix(left, when) {
				t.Errorf("%s is left because %q, %v, want %q", orphan.ID, left, err, when)
			}
		}
		if len(early) != 4 || len(ids) != 0 {
			t.Errorf("a document was written a minute ago: %d orphans are left, and %q are not", len(early), ids)
		}
		time.Sleep(10 * time.Minute)
		found, ids := o.orphans(t, "mailer")
		want := []string{prefix + "..-1F", prefix + "..-FF", prefix + "..1F-FF", prefix + ".info"}
		if !slices.Equal(ids, want) {
			t.Fatalf("%q are orphans, want %q", ids, want)
		}
		o.put(t, o.leases, `{"id":"`+want[1]+`","edited":true}`)
		leases := place.Stored(o.leases, place.Address{Container: "leases"})
		for i, orphan := range found {
			left, err := orphan.Remove(t.Context(), leases)
			if err != nil || (left != "") != (i == 1) {
				t.Errorf("%s: %q, %v, want the one that was written meanwhile left", orphan.ID, left, err)
			}
		}
		time.Sleep(11 * time.Minute)
		if _, ids := o.orphans(t, "mailer"); !slices.Equal(ids, want[1:2]) {
			t.Errorf("after the removal %q are orphans, want %q", ids, want[1:2])
		}
		if _, ids := o.orphans(t, "other"); len(ids) != 1 {
			t.Errorf("%q are orphans of another name, want its marker, which is left", ids)
		}
	})
}
