package dashboard

import (
	"bufio"
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Several clients get one state at the same time. The race detector sees whether they share what one of them changes.
func TestOneStateIsForManyAtATime(t *testing.T) {
	w := newWorld(t, 1)
	d := New(Options{Interval: time.Hour})
	d.Show(w.unit(nil))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 20 {
				r := httptest.NewRequest(http.MethodGet, "/status", nil)
				r.Host = "localhost"
				to := httptest.NewRecorder()
				if d.ServeHTTP(to, r); to.Code != http.StatusOK || !strings.HasSuffix(to.Body.String(), "}\n") {
					t.Errorf("%d %s", to.Code, to.Body)
				}
			}
		})
	}
	all.Wait()
	if got := w.lists.Load(); got != 1 {
		t.Errorf("the unit was listed %d times, want once", got)
	}
}

// odd is a lease store whose listing does something else first.
type odd struct {
	feed.LeaseStore
	before func(context.Context) error
}

func (s odd) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	if err := s.before(ctx); err != nil {
		return nil, time.Time{}, err
	}
	return s.LeaseStore.List(ctx)
}

// oddUnit is a unit with an odd lease store.
func (w *world) oddUnit(name string, before func(context.Context) error) Unit {
	return Unit{Name: name, Container: "orders", Source: w.orders, Leases: odd{w.leases, before}}
}

// A listing that takes longer than the interval is shared by all who wait for it: ten viewers do not list in turn.
func TestASlowListingIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{Interval: 2 * time.Second})
		var lists atomic.Int64
		var isSlow atomic.Bool
		isSlow.Store(true)
		d.Show(w.oddUnit("mailer", func(context.Context) error {
			if lists.Add(1); isSlow.Load() {
				time.Sleep(3 * time.Second)
			}
			return nil
		}))
		n := serve(t, d)
		var viewers []<-chan string
		for range 10 {
			viewers = append(viewers, partsOf(n.connect(t, "")))
		}
		time.Sleep(12*time.Second + 500*time.Millisecond)
		for i, parts := range viewers {
			if got := count(received(parts), "event: status"); got < 3 {
				t.Errorf("viewer %d got %d states in 12 s, want one for each listing", i, got)
			}
		}
		if got := lists.Load(); got > 5 {
			t.Errorf("the unit was listed %d times in 12 s, want no more than one listing at a time", got)
		}
		isSlow.Store(false)
		time.Sleep(time.Minute) // until no listing is under way
	})
}

// A lease store that does not even obey the end of its context delays other units once, and is asked no second time.
func TestAStoreThatHangsDelaysOthersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{})
		answers := make(chan error)
		var asked atomic.Int64
		d.Show(w.oddUnit("hangs", func(context.Context) error { asked.Add(1); return <-answers }))
		d.Show(w.oddUnit("works", func(context.Context) error { return nil }))
		for i, most := range []time.Duration{surveyTimeout + patience, 0, 0} {
			began := time.Now()
			_, s := ask[Status](t, d, "/status")
			took := time.Since(began)
			if took > most || len(s.Units) != 2 || s.Units[0].Error == nil || s.Units[1].Error != nil {
				t.Errorf("%d: after %v: %+v", i, took, s.Units)
			}
			if code, _ := ask[Health](t, d, "/healthz"); code != http.StatusOK {
				t.Errorf("health %d", code)
			}
			time.Sleep(time.Minute)
		}
		if asked.Load() != 1 {
			t.Errorf("the store was asked %d times while it hung", asked.Load())
		}
		close(answers)
		time.Sleep(time.Minute)
		if _, s := ask[Status](t, d, "/status"); s.Units[0].Error != nil {
			t.Errorf("after the store has answered: %s", *s.Units[0].Error)
		}
	})
}

// A store, a check and a search that panic end neither the process nor the dashboard.
func TestPanicsAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		d := New(Options{
			Find:   func(context.Context) ([]Unit, error) { panic("the search") },
			Checks: map[string]func() error{"store": func() error { panic("the check") }},
		})
		d.Show(w.oddUnit("mailer", func(context.Context) error { panic("the listing") }))
		if code, _ := ask[map[string]string](t, d, "/explain?unit=other&lease=1"); code != http.StatusNotFound {
			t.Errorf("explain %d", code)
		}
		_, s := ask[Status](t, d, "/status")
		if s.Error == nil || !strings.Contains(*s.Error, "the search") || s.Units[0].Error == nil ||
			!strings.Contains(*s.Units[0].Error, "the listing") || s.Health.OK {
			t.Errorf("status %+v", s)
		}
	})
}

// Units are searched for every 10 seconds, also if that fails, and not more often for a viewer who has come again.
func TestASearchThatFailsIsNotRepeatedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		d := New(Options{Find: func(context.Context) ([]Unit, error) { calls++; return nil, errors.New("away") }})
		for range 10 {
			if _, s := ask[Status](t, d, "/status"); s.Error == nil {
				t.Error("no error")
			}
			time.Sleep(2 * time.Second)
		}
		if calls != 2 {
			t.Errorf("%d calls in 20 s, want 2", calls)
		}
	})
}

// If a found unit cannot be listed, the next search replaces it: its container may have been created again.
func TestAUnitThatWasCreatedAgainIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		gone := errors.New("the container was deleted")
		old := w.oddUnit("mailer", func(context.Context) error { return gone })
		found := []Unit{old, old}
		d := New(Options{Find: func(context.Context) ([]Unit, error) { return found, nil }})
		if _, s := ask[Status](t, d, "/status"); len(s.Units) != 1 || s.Units[0].Error == nil {
			t.Fatalf("units %+v", s.Units)
		}
		found = []Unit{w.unit(nil)}
		time.Sleep(findEvery)
		if _, s := ask[Status](t, d, "/status"); len(s.Units) != 1 || s.Units[0].Error != nil {
			t.Errorf("units %+v", s.Units)
		}
	})
}

// The headers of a stream are an answer. A client that keeps its connection would wait for more than that forever.
func TestTheHeadersOfEventsAreAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		r := httptest.NewRequest(http.MethodHead, "/events", nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		if d.ServeHTTP(w, r); w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
}

// A flood of events costs a viewer some answers a second, not one for each event.
func TestAFloodOfEventsIsSentInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(Options{})
		viewer := partsOf(serve(t, d).connect(t, ""))
		log := d.Events("mailer", "orders")
		received(viewer)
		for range 10 {
			for range 1000 {
				log.Ready(t.Context())
				synctest.Wait() // the viewer would have sent each
			}
			time.Sleep(eventsEvery)
		}
		time.Sleep(eventsEvery)
		if got := count(received(viewer), "event: event"); got < mostEvents || got > 11*mostEvents {
			t.Errorf("of 10,000 events in a second the viewer got %d", got)
		}
	})
}

// One dead letter with an impossible time does not hide the others.
func TestATimeThatIsNoneBreaksNoAnswer(t *testing.T) {
	for _, text := range []string{"9999-12-31T23:59:59-12:00", "0000-01-01T00:00:00+12:00"} {
		parked, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		got := string(jsonOf(letterOf(&feed.DeadLetter{ID: "1", Parked: parked})))
		if !strings.Contains(got, `"id":"1"`) {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestNumbersThatAreNoneBreakNoAnswer(t *testing.T) {
	for n, want := range map[float64]string{
		math.NaN(): "null", math.Inf(1): "null", math.Inf(-1): "null", 3: "3", 0: "0",
	} {
		got := string(jsonOf(UnitStatus{Charge: numberIn(n)}))
		if !strings.Contains(got, `"request_units":`+want+`,`) {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
}

// An answer does not wait for a body that never comes.
func TestABodyIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := serve(t, New(Options{}))
		conn := n.dial(t, "POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
		began := time.Now()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusMethodNotAllowed || time.Since(began) != 0 {
			t.Errorf("%v, %v after %v", answer, err, time.Since(began))
		}
	})
}
