package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// held is a lease store whose first listing waits until it is let go, or until nobody waits for it.
type held struct {
	feed.LeaseStore
	first chan struct{} // holds one
	let   chan struct{}
}

func hold(store feed.LeaseStore) held {
	h := held{store, make(chan struct{}, 1), make(chan struct{})}
	h.first <- struct{}{}
	return h
}

func (h held) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	select {
	case <-h.first:
		select {
		case <-h.let:
		case <-ctx.Done():
			return nil, time.Time{}, context.Cause(ctx)
		}
	default:
	}
	return h.LeaseStore.List(ctx)
}

// Whoever goes while units are listed takes only its own answer along: the next viewer gets the state at once.
func TestAViewerWhoGoesLeavesNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{})
		slow := hold(w.leases)
		d.Show(Unit{Name: "mailer", Container: "orders", Source: w.orders, Leases: slow})
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/status", nil)
		r.Host = "localhost"
		var listing sync.WaitGroup
		listing.Go(func() { d.ServeHTTP(httptest.NewRecorder(), r) })
		synctest.Wait()
		leave()
		listing.Wait()
		close(slow.let)
		_, s := ask[Status](t, d, "/status")
		if len(s.Units) != 1 || s.Units[0].Error != nil {
			t.Errorf("the next viewer gets %+v, want the state of the unit", s.Units)
		}
	})
}

// A unit that is shown while others are listed is in the next answer, not only after the interval.
func TestAUnitThatComesDuringAListingIsInTheNextAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{})
		slow := hold(w.leases)
		d.Show(Unit{Name: "mailer", Container: "orders", Source: w.orders, Leases: slow})
		var listing sync.WaitGroup
		listing.Go(func() {
			if _, s := ask[Status](t, d, "/status"); len(s.Units) != 1 {
				t.Errorf("the listing has %d units, want that of its beginning", len(s.Units))
			}
		})
		synctest.Wait()
		d.Show(Unit{Name: "audit", Container: "orders", Source: w.orders, Leases: w.leases})
		close(slow.let)
		listing.Wait()
		if _, s := ask[Status](t, d, "/status"); len(s.Units) != 2 || s.Units[0].Name != "audit" {
			t.Errorf("the next answer has %+v, want both units", s.Units)
		}
	})
}

// unread is a source that cannot be read.
type unread struct{ feed.Source }

func (unread) Read(context.Context, feed.Range, feed.Position, feed.ReadOptions) (feed.Page, error) {
	return feed.Page{}, errBroken
}

// A lag that cannot be measured is null, and never 0.
func TestALagThatIsUnknownIsNull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.start("a", done, changefeed.Options{})
		time.Sleep(time.Minute)
		d := New(Options{})
		d.Show(Unit{Name: "mailer", Container: "orders", Source: unread{w.orders}, Leases: w.leases})
		_, s := ask[Status](t, d, "/status")
		u := s.Units[0]
		if u.Error != nil || len(u.Leases) != 1 {
			t.Fatalf("%+v, want a unit with a lease", u)
		}
		for name, lag := range map[string]Lag{"unit": u.Lag, "lease": u.Leases[0].Lag} {
			if lag != (Lag{}) {
				t.Errorf("the lag of the %s is %+v, want nothing", name, lag)
			}
		}
	})
}

// A lag that does not fall has a pace, and no end.
func TestALagThatDoesNotFallHasNoEnd(t *testing.T) {
	for catchUp, want := range map[time.Duration]*float64{
		changefeed.Never: nil, 0: new(0.0), 90 * time.Second: new(90.0),
	} {
		lag := changefeed.Lag{Pending: 7, Pace: &changefeed.Pace{PerSecond: 2.5, CatchUp: catchUp}}
		got := lagOf(&lag, time.Now())
		if *got.Pending != 7 || *got.PerSecond != 2.5 || (got.Left == nil) != (want == nil) ||
			want != nil && *got.Left != *want {
			t.Errorf("caught up in %v: %+v", catchUp, got)
		}
	}
}

// An unknown time says nothing about the others.
func TestTheOldestOfTimesIsTheLongestOneThatIsKnown(t *testing.T) {
	for _, tt := range []struct{ a, b, want *float64 }{
		{nil, nil, nil},
		{new(2.0), nil, new(2.0)},
		{nil, new(2.0), new(2.0)},
		{new(2.0), new(3.0), new(3.0)},
		{new(3.0), new(2.0), new(3.0)},
	} {
		if got := oldest(tt.a, tt.b); (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("got %v, want %v", got, tt.want)
		}
	}
}

// Units with similar names on one container are told of, both, because one of the names may be mistyped.
func TestUnitsWithSimilarNamesAreToldOf(t *testing.T) {
	units := []UnitStatus{
		{Name: "mailer", Container: "orders", Finds: []Finding{{Word: "paused"}}},
		{Name: "maler", Container: "orders"},
		{Name: "billing", Container: "orders"},
		{Name: "maler", Container: "users"},
	}
	addAlike(units)
	var words []string
	for _, u := range units {
		for _, f := range u.Finds {
			words = append(words, u.Name+" on "+u.Container+": "+f.Word+" "+f.Text)
		}
	}
	const text = " on the same container has a similar name, and each of the two handles every change"
	want := []string{
		"mailer on orders: paused ", "mailer on orders: alike unit maler" + text,
		"maler on orders: alike unit mailer" + text,
	}
	if !slices.Equal(words, want) {
		t.Errorf("found %q, want %q", words, want)
	}
}
