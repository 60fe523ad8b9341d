package dashboard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A process without units is healthy and ready: that is what a server is.
func TestHealthOfChecks(t *testing.T) {
	why := error(nil)
	d := New(Options{Version: "shop v1", Checks: map[string]func() error{"store": func() error { return why }}})
	if code, h := ask[Health](t, d, "/healthz"); code != http.StatusOK || !h.OK || h.Version != "shop v1" ||
		len(h.Checks) != 1 || !h.Checks[0].OK || h.Checks[0].Why != nil {
		t.Errorf("%d %+v", code, h)
	}
	why = errors.New("disk full")
	if code, h := ask[Health](t, d, "/healthz"); code != http.StatusServiceUnavailable || h.OK ||
		h.Checks[0].Name != "store" || h.Checks[0].OK || *h.Checks[0].Why != "disk full" {
		t.Errorf("with a full disk: %d %+v", code, h)
	}
	if code, _ := ask[Health](t, d, "/readyz"); code != http.StatusOK {
		t.Errorf("readiness is not that of checks: %d", code)
	}
}

// A process that shows its units later is not ready before.
func TestAProcessIsReadyOnceItsUnitsHaveBegun(t *testing.T) {
	why := errors.New("0 of 2 units have begun")
	d := New(Options{Begun: func() error { return why }})
	code, h := ask[Health](t, d, "/readyz")
	if code != http.StatusServiceUnavailable || h.Waiting == nil || *h.Waiting != why.Error() {
		t.Errorf("before: %d %+v", code, h)
	}
	if code, h = ask[Health](t, d, "/healthz"); code != http.StatusOK || !h.OK {
		t.Errorf("a process that begins is healthy, got %d %+v", code, h)
	}
	why = nil
	if code, h = ask[Health](t, d, "/readyz"); code != http.StatusOK || h.Waiting != nil {
		t.Errorf("after: %d %+v", code, h)
	}
}

// A unit is ready from its first round on, also if it has no lease because there are more instances than leases. It is
// healthy as Processor.Healthy says.
func TestHealthAndReadinessOfUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		hangs := make(chan struct{})
		t.Cleanup(func() { close(hangs) })
		handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			<-hangs
			return nil
		})
		never, err := changefeed.New(w.orders, w.leases, done, changefeed.Options{})
		if err != nil {
			t.Fatal(err)
		}
		idle := New(Options{})
		idle.Show(w.unit(never))
		if code, h := ask[Health](t, idle, "/readyz"); code != http.StatusServiceUnavailable ||
			!strings.Contains(*h.Units[0].Waiting, "no instance") {
			t.Errorf("a processor that does not run: %d %+v", code, h)
		}
		if code, h := ask[Health](t, idle, "/healthz"); code != http.StatusServiceUnavailable || h.OK ||
			*h.Units[0].Why != changefeed.ErrNotRunning.Error() {
			t.Errorf("a processor that does not run: %d %+v", code, h)
		}
		first, second := New(Options{}), New(Options{})
		slow := hold(w.leases)
		variant := changefeed.Options{HandlerTimeout: time.Hour, Variant: "mail v1"}
		first.Show(w.unit(w.startOn(slow, "a", handler, variant)))
		synctest.Wait()
		if code, h := ask[Health](t, first, "/readyz"); code != http.StatusServiceUnavailable ||
			h.Units[0].Waiting == nil {
			t.Errorf("before the first round: %d %+v", code, h)
		}
		close(slow.let)
		time.Sleep(time.Minute)
		second.Show(w.unit(w.start("b", handler, changefeed.Options{HandlerTimeout: time.Hour})))
		time.Sleep(time.Minute)
		code, h := ask[Health](t, first, "/readyz")
		if u := h.Units[0]; code != http.StatusOK || !u.Ready || !u.OK || u.Leases != 1 || u.Waiting != nil ||
			u.View == nil || u.Outage || u.Failing != nil || u.InHand != nil || u.Variant == "" {
			t.Errorf("the instance with the lease: %d %+v", code, u)
		}
		code, h = ask[Health](t, second, "/readyz")
		if u := h.Units[0]; code != http.StatusOK || !u.Ready || u.Leases != 0 ||
			*u.Waiting != "this instance has no lease: the unit has 1 for 2 instances, and some may be paused" {
			t.Errorf("the instance without a lease: %d %+v", code, u)
		}
		w.write("Rome", `{"id":"1","city":"Rome"}`)
		time.Sleep(2 * time.Minute)
		code, h = ask[Health](t, first, "/healthz")
		if u := h.Units[0]; code != http.StatusOK || u.InHand == nil || *u.InHand < 110 {
			t.Errorf("a batch is in the handler for 2 minutes: %d, in hand %v", code, u.InHand)
		}
	})
}

// A process that ends takes no more work: an instance that still finishes a batch is not ready, and counts no leases.
func TestAnInstanceThatStopsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		finish := make(chan struct{})
		handler := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			<-finish
			return nil
		})
		p, err := changefeed.New(w.orders, w.leases, handler, changefeed.Options{Start: feed.FromBeginning()})
		if err != nil {
			t.Fatal(err)
		}
		d := New(Options{})
		d.Show(w.unit(p))
		w.write("Rome", `{"id":"1","city":"Rome"}`)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(10 * time.Second) // the change is in the handler
		if code, h := ask[Health](t, d, "/readyz"); code != http.StatusOK || h.Units[0].Leases != 1 {
			t.Errorf("an instance that works: %d %+v", code, h)
		}
		stop()
		synctest.Wait()
		if runs := p.Status(); len(runs) != 1 || !runs[0].Stopping {
			t.Fatalf("%+v, want a run that stops", runs)
		}
		if code, h := ask[Health](t, d, "/readyz"); code != http.StatusServiceUnavailable || h.Units[0].Leases != 0 ||
			h.Units[0].Waiting == nil {
			t.Errorf("an instance that stops: %d %+v", code, h)
		}
		close(finish)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// An instance that has lost its leases because their store is away does not wait for a lease: it is not ready.
func TestAnInstanceWhoseStoreIsAwayIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p, err := changefeed.New(w.orders, away{w.leases}, done, changefeed.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		d := New(Options{})
		d.Show(w.unit(p))
		time.Sleep(5 * time.Minute) // more than an expiration
		code, h := ask[Health](t, d, "/readyz")
		if u := h.Units[0]; code != http.StatusServiceUnavailable || u.Ready || u.Why == nil || *u.Waiting != *u.Why {
			t.Errorf("%d %+v, want 503 with the reason", code, u)
		}
		cancel()
		<-ended
	})
}
