package unit

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// What was removed, and what was left, is said of its own record, among the records of the unit and of its orphans.
func TestEachRemovalIsSaidOfItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t)
		o.lease(t, "-FF", nil)
		gone := feed.Record{Kind: feed.KindHost, Token: "gone", Owner: "gone", Version: 1, Expiration: time.Minute}
		if _, err := o.store.Create(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		former := o
		var err error
		spec := docstore.ContainerSpec{ID: "former", Paths: []string{"/id"}}
		if former.monitored, err = o.db.CreateContainer(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if former.store, err = docstore.NewLeases(t.Context(), o.leases, "mailer", former.monitored); err != nil {
			t.Fatal(err)
		}
		former.lease(t, "-1F", nil)
		former.lease(t, "1F-FF", nil)
		if err := o.db.DeleteContainer(t.Context(), "former"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		orphans, ids := o.orphans(t, "mailer")
		u := admin.Open(o.monitored, o.store, admin.Options{})
		surplus, err := u.Surplus(t.Context())
		if err != nil || len(surplus) != 1 || len(orphans) != 2 {
			t.Fatalf("surplus %v, %v, orphans %q, want one and two", surplus, err, ids)
		}
		o.put(t, o.leases, `{"id":"`+ids[0]+`","edited":true}`)
		leases := place.Stored(o.leases, place.Address{Container: "leases"})
		all, err := Garbage{leases, u, surplus, orphans}.Remove(t.Context())
		if err != nil || len(all) != 3 {
			t.Fatalf("removed %v, %v, want three records", all, err)
		}
		for i, isLeft := range []bool{false, true, false} {
			if r := all[i]; r.Done == isLeft || (r.Left != nil) != isLeft {
				t.Errorf("record %d is %+v, want it left: %v", i, r, isLeft)
			}
		}
		if all[0].ID != surplus[0].ID || all[1].ID != ids[0] || all[2].ID != ids[1] {
			t.Errorf("got %+v, want %s and %q", all, surplus[0].ID, ids)
		}
	})
}

// How much was done is said in this order, with a reason and without.
func TestTheHistorySaysHowMuchWasDone(t *testing.T) {
	for reason, want := range map[string]string{
		"": "1 of 4 done: no right", "INC-4711": "INC-4711; 1 of 4 done: no right",
	} {
		var out strings.Builder
		e := admin.Entry{Reason: reason, Failed: "no right", Done: 1, Count: 4}
		if err := WriteHistory(&out, "mailer", []admin.Entry{e}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "  "+want+"\n") {
			t.Errorf("got %s, want the note %s", out.String(), want)
		}
	}
}
