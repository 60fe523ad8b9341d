package dashboard

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// What a unit costs is added up by what it is for, from the hooks of its processor and from the listings.
func TestCostsAreAddedUpByWhatTheyAreFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{})
		d.Show(w.unit(nil))
		costs := func() []Cost {
			time.Sleep(time.Minute) // for a new listing
			_, s := ask[Status](t, d, "/status")
			return s.Units[0].Costs
		}
		if got := costs(); got == nil || len(got) != 0 {
			t.Errorf("before any request the costs are %+v, want none", got)
		}
		hooks := d.Events("mailer", "orders")
		others := d.Events("audit", "orders")
		for _, charge := range []float64{2, 3.5, 0, math.NaN(), math.Inf(1), -1} {
			hooks.ReadDone(t.Context(), feed.ReadDone{Charge: charge})
			others.ReadDone(t.Context(), feed.ReadDone{Charge: 100})
		}
		hooks.StoreDone(t.Context(), feed.StoreDone{Charge: 10})
		d.spent.costsOf(name{"mailer", "orders"}).addRequests(forListings, 4, 8)
		want := []Cost{{"reads", 2, 5.5}, {"leases", 1, 10}, {"listings", 4, 8}}
		if got := costs(); !slices.Equal(got, want) {
			t.Errorf("the costs are %+v, want %+v", got, want)
		}
	})
}

// Charges whose sum is no number any more do not take the whole status away.
func TestCostsStayNumbers(t *testing.T) {
	var c costs
	for range 2 {
		c.addRequests(forReads, 1, math.MaxFloat64)
	}
	if got := string(jsonOf(c.listSpent())); !strings.HasPrefix(got, `[{"for":"reads","requests":1,`) {
		t.Errorf("the costs are %s", got)
	}
}

// charging is a source whose requests cost something.
type charging struct{ feed.Source }

func (c charging) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	feed.AddCost(ctx, feed.Cost{Requests: 1, Charge: 2})
	return c.Source.Read(ctx, r, from, o)
}

// A listing is one of the costs of the process.
func TestListingsCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.start("a", done, changefeed.Options{})
		w.write("oslo", `{"id":"1","city":"oslo"}`)
		time.Sleep(time.Minute) // for the unit to be made
		d := New(Options{})
		u := w.unit(nil)
		u.Source = charging{w.orders}
		d.Show(u)
		_, first := ask[Status](t, d, "/status")
		time.Sleep(time.Minute) // for a new listing
		_, second := ask[Status](t, d, "/status")
		once := first.Units[0].Costs
		if len(once) != 1 || once[0].For != "listings" || once[0].Requests == 0 ||
			once[0].Requests != int64(first.Units[0].Requests) {
			t.Fatalf("the costs are %+v, want those of the listing", once)
		}
		if twice := second.Units[0].Costs; twice[0].Requests != once[0].Requests+int64(second.Units[0].Requests) {
			t.Errorf("after two listings the costs are %+v, and %+v after one", twice, once)
		}
	})
}

// What the process has to say of a unit is a part of its state.
func TestAUnitSaysMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{})
		u := w.unit(nil)
		d.Show(u)
		if _, s := ask[Status](t, d, "/status"); s.Units[0].Says == nil || len(s.Units[0].Says) != 0 {
			t.Errorf("the unit says %+v, want nothing", s.Units[0].Says)
		}
		u.Says = func() []string { return []string{"one", "two"} }
		d.Show(u)
		if _, s := ask[Status](t, d, "/status"); !slices.Equal(s.Units[0].Says, []string{"one", "two"}) {
			t.Errorf("the unit says %+v", s.Units[0].Says)
		}
	})
}
