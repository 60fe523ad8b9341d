package changefeed_test

import (
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A newer version of this package may keep records of other kinds, and leases and hosts in
// other states, among those of this one.
func TestRecordsOfANewerVersionAreKeptAndLeftAlone(t *testing.T) {
	half := feed.FullRange().Cut(2)
	lease := feed.Record{Kind: feed.KindLease, Token: half[0].String(), Range: half[0], Version: 1, State: "paused"}
	owned := lease
	owned.Owner, owned.Epoch, owned.Expiration = "h", "e", time.Second
	for _, c := range []struct {
		name    string
		record  feed.Record
		isLease bool // it covers its range, and is reported
	}{
		{"a new kind of a range", feed.Record{Kind: "held", Token: half[0].String()}, false},
		{"a new kind that has an owner", feed.Record{
			Kind: "observer", Token: "h/e", Owner: "h", Epoch: "e",
			Expiration: time.Second,
		}, false},
		{
			"a new kind without a token",
			feed.Record{Kind: "control", Properties: map[string]string{"pause": "all"}},
			false,
		},
		{"a lease in a new state", lease, true},
		{"a lease in a new state that has expired", owned, true},
		{"a host in a new state", feed.Record{
			Kind: feed.KindHost, Token: "h/e", Owner: "h", Epoch: "e",
			State: "draining", Expiration: time.Second,
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				kept, err := w.leases.Create(t.Context(), c.record)
				if err != nil {
					t.Fatal(err)
				}
				y := &tally{}
				p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
				w.fill(20)
				time.Sleep(20 * time.Minute)
				if now, ok := w.record(kept.ID); !ok || now.ETag != kept.ETag || now.Kind != c.record.Kind ||
					now.State != c.record.State {
					t.Errorf("it was written over: %+v", now)
				}
				if leases := len(w.records(feed.KindLease)); leases != 2 {
					t.Errorf("%d leases, want 2", leases)
				}
				if items, _ := y.items(); (items < 20) != c.isLease {
					t.Errorf("%d of 20 items handled", items)
				}
				if found := p.errs.find(feed.ErrBadLease) != nil; found != c.isLease || len(p.errs.all()) > 1 {
					t.Errorf("reported %v", p.errs.all())
				}
				p.stop(t)
			})
		})
	}
}
