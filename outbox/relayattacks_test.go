package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// What somebody who did not write it found wrong with the relay.

func TestWhatWasAcceptedBeforeARefusalExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		c := &contact{Name: "x"}
		c.RecordAlso(nameUpdated{"1"})
		c.RecordAlso(nameUpdated{"2"})
		c.RecordAlso(nameUpdated{"3"})
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: -1})
		u.Create(docOf("c1", c))
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		failed := false
		to := &broker{fail: func(_ int, m outbox.Message) error {
			if m.Seq == 2 && !failed {
				failed = true
				return errDown
			}
			return nil
		}}
		relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{Container: contacts, ExpireAfter: time.Hour}),
			changefeed.Options{},
			func() bool { return len(to.messages()) == 3 })
		time.Sleep(time.Minute)
		for _, d := range stored(t, contacts, "c1") {
			if d["type"] == "domainEvent" && d["ttl"] == -1.0 {
				t.Errorf("event %v is published and never expires: %v", d["seq"], d)
			}
		}
	})
}

// An event that has room for its own data and for no more: the relay's patch makes it too large.
func TestAnEventWithoutRoomForItsExpiryIsPublishedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		// 2 MB less a little
		for pad := 2<<20 - 600; ; pad += 10 {
			c := &contact{}
			c.Record(nameUpdated{strings.Repeat("x", pad)})
			u := outbox.NewUnit(contacts, outbox.Options{EventTTL: -1})
			u.Create(docOf(fmt.Sprint("c", pad), c))
			if err := u.Commit(t.Context()); errors.Is(err, outbox.ErrTooLarge) {
				break
			}
			if pad < 2<<20-350 {
				contacts.Delete(t.Context(), feed.Key(fmt.Sprint("c", pad)), "x", "")
			}
		}
		var mu sync.Mutex
		times := map[string]int{}
		to := publisherFunc(func(_ context.Context, msgs []outbox.Message) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range msgs {
				times[m.Key]++
			}
			return len(msgs), nil
		})
		r := newRelay(t, to, outbox.RelayOptions{Container: contacts, ExpireAfter: time.Hour})
		n := 0
		relaying(t, contacts, leases, r, changefeed.Options{OnFailure: changefeed.FailurePolicy{MaxAttempts: 5}},
			func() bool { n++; return n > 600 })
		for key, n := range times {
			if n > 1 {
				t.Errorf("event of %s published %d times in 10 minutes, and still not done: %.200v", key, n, r.Status())
			}
		}
	})
}

func TestAnOutageHidesNoAlarm(t *testing.T) {
	for _, conc := range []int{1, 64} {
		for _, attempts := range []int{0, 5} {
			t.Run(fmt.Sprintf("concurrency %d, attempts %d", conc, attempts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					contacts, leases := open(t)
					for i := range 12 {
						ttl := time.Hour * 24
						if i%2 == 1 {
							ttl = 20 * time.Minute
						}
						u := outbox.NewUnit(contacts, outbox.Options{EventTTL: ttl})
						u.Create(docOf(fmt.Sprint("c", i), newContact("A")))
						if err := u.Commit(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					to := &broker{fail: func(_ int, m outbox.Message) error { return errDown }}
					var mu sync.Mutex
					alarmed := map[string]int{}
					r := newRelay(t, to, outbox.RelayOptions{Hooks: outbox.RelayHooks{Expiring: func(m outbox.Message,
						left time.Duration,
					) {
						mu.Lock()
						alarmed[m.Key]++
						mu.Unlock()
					}}})
					o := changefeed.Options{
						Concurrency: conc,
						OnFailure:   changefeed.FailurePolicy{MaxAttempts: attempts},
					}
					if attempts > 0 {
						o.OnFailure.DeadLetters = letterBox(t)
					}
					waiting := 0
					n := 0
					relaying(t, contacts, leases, r, o, func() bool {
						waiting = max(waiting, r.Status().Waiting)
						time.Sleep(time.Second)
						n++
						return n > 595
					})
					if len(alarmed) < 6 { // six keys have events that expire within 20 minutes
						t.Errorf("conc %d attempts %d: %d keys of 6 alarmed, waiting %d", conc, attempts, len(alarmed),
							waiting)
					}
				})
			})
		}
	}
}

func TestPoisonThatIsNotParkedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: 10 * time.Minute})
		u.Create(docOf("c1", newContact("A")))
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		to := &broker{fail: func(_ int, m outbox.Message) error { return feed.Poison(outbox.ErrTooLarge) }}
		var mu sync.Mutex
		var alarms []time.Duration
		r := newRelay(t, to, outbox.RelayOptions{Hooks: outbox.RelayHooks{Expiring: func(m outbox.Message,
			left time.Duration,
		) {
			mu.Lock()
			alarms = append(alarms, left)
			mu.Unlock()
		}}})
		waiting := 0
		n := 0
		relaying(t, contacts, leases, r, changefeed.Options{}, func() bool {
			waiting = max(waiting, r.Status().Waiting)
			n++
			return n > 590
		})
		if waiting == 0 {
			t.Error("the status never said that a key waits")
		}
		for i := 1; i < len(alarms); i++ {
			if alarms[i-1]-alarms[i] < time.Minute {
				t.Errorf("alarms after %v", alarms[i-1]-alarms[i])
			}
		}
	})
}

// After a redrive that failed, the event is among the dead letters as before: it does not wait.
func TestWhatIsParkedDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		for i := range 4 {
			rename(t, contacts, fmt.Sprint("c", i), 1)
		}
		to := &broker{fail: func(_ int, m outbox.Message) error {
			if m.Key == "c1" && m.Seq == 2 {
				return feed.Poison(outbox.ErrTooLarge)
			}
			return nil
		}}
		box := letterBox(t)
		r := newRelay(t, to, outbox.RelayOptions{})
		store, err := docstore.NewLeases(t.Context(), leases, "relay", contacts)
		if err != nil {
			t.Fatal(err)
		}
		p, err := changefeed.New(contacts, store, r, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
			Hooks:     changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(5 * time.Minute)
		if n := r.Status().Waiting; n != 0 {
			t.Errorf("before: %d wait", n)
		}
		for l, err := range box.Letters(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if l.Disposition != feed.DispositionHeld {
				if _, err := deadletters.Redrive(t.Context(), contacts, store, l.Change.PartitionKey,
					l.ID); err != nil {
					t.Error(err)
				}
			}
		}
		time.Sleep(5 * time.Minute)
		if n := r.Status().Waiting; n != 0 {
			t.Errorf("after: %d keys wait, and all that is not published is parked", n)
		}
		stop()
		wg.Wait()
	})
}

// The broker works, and refuses one event for ever. That one is parked after its attempts, and the rest goes on.
func TestAnEventThatIsRefusedForEverIsParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		for i := range 9 {
			rename(t, contacts, fmt.Sprint("c", i), 1)
		}
		to := &broker{fail: func(_ int, m outbox.Message) error {
			if m.Key == "c1" && m.Seq == 2 {
				return fmt.Errorf("answer 500: %w", outbox.ErrRefused)
			}
			return nil
		}}
		box := letterBox(t)
		r := newRelay(t, to, outbox.RelayOptions{})
		store, err := docstore.NewLeases(t.Context(), leases, "relay", contacts)
		if err != nil {
			t.Fatal(err)
		}
		var attempts atomic.Int64
		p, err := changefeed.New(contacts, store, r,
			changefeed.Options{
				OnFailure: changefeed.FailurePolicy{MaxAttempts: 5, DeadLetters: box},
				Hooks: changefeed.Hooks{Error: func(_ context.Context, err *feed.Error) {
					if failed, ok := errors.AsType[*feed.BatchError](err); ok {
						attempts.Store(max(attempts.Load(), int64(failed.Attempt)))
					}
				}},
			})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
		var letters []feed.DeadLetter
		for l, err := range box.Letters(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			letters = append(letters, l)
		}
		// To tell it from the others of its key takes a call more.
		if len(letters) != 1 || letters[0].Attempts != 6 || attempts.Load() != 6 ||
			!strings.Contains(letters[0].Cause, "answer 500") {
			t.Errorf("parked %d after attempt %d, want the one event after 6", len(letters), attempts.Load())
		}
		if s := r.Status(); s.Published != 26 || s.Waiting != 0 {
			t.Errorf("%d published, %d wait, want all others", s.Published, s.Waiting)
		}
	})
}

// Two deployment units publish the events of a container to two brokers, and one lets them expire after that.
func TestAnotherRelayPublishesWhatThisOneLetsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, leases := open(t)
		run := func(name string, o outbox.RelayOptions, to outbox.Publisher) (stop func()) {
			store, err := docstore.NewLeases(t.Context(), leases, name, contacts)
			if err != nil {
				t.Fatal(err)
			}
			r := newRelay(t, to, o)
			p, err := changefeed.New(contacts, store, r, changefeed.Options{
				Start: feed.FromBeginning(),
				Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := p.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			return func() { cancel(); wg.Wait() }
		}
		begun := time.Now()
		nats := &broker{}
		hook := &broker{fail: func(int, outbox.Message) error { // it is down for a minute
			if time.Since(begun) < time.Minute {
				return errDown
			}
			return nil
		}}
		stop1 := run("nats", outbox.RelayOptions{Container: contacts, ExpireAfter: time.Hour}, nats)
		stop2 := run("hook", outbox.RelayOptions{}, hook)
		time.Sleep(10 * time.Second)
		stop2() // it is restarted, as for a new version
		renameFor(t, contacts, "c1", 3, -1)
		time.Sleep(10 * time.Second)
		stop2 = run("hook", outbox.RelayOptions{}, hook)
		time.Sleep(10 * time.Minute)
		stop1()
		stop2()
		if a, b := len(nats.messages()), len(hook.messages()); a != 7 || b != 7 {
			t.Errorf("one broker has %d of 7 events, the other has %d", a, b)
		}
	})
}

// The publishing hook's second part is called also when the publisher panics, or a span never ends.
func TestAPublisherThatPanicsEndsItsSpan(t *testing.T) {
	began, ended := 0, 0
	r := newRelay(t, publisherFunc(func(context.Context, []outbox.Message) (int, error) {
		panic("x")
	}), outbox.RelayOptions{Hooks: outbox.RelayHooks{
		Publishing: func(ctx context.Context, _ []outbox.Message) (context.Context, func(int, error)) {
			began++
			return ctx, func(int, error) { ended++ }
		},
	}})
	func() {
		defer func() { recover() }()
		body := []byte(`{"id":"e","partitionKey":"c1","type":"domainEvent","data":{"action":"a"}}`)
		r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{{ID: "e", Body: body}}})
	}()
	if began != ended {
		t.Errorf("began %d, ended %d; status %+v", began, ended, r.Status())
	}
}

// What a relay has marked comes back in its feed.
func TestAMarkedEventIsNoneToTheRelayThatMarkedIt(t *testing.T) {
	contacts, _ := open(t)
	changes := []feed.Change{{
		ID: "e", PartitionKey: feed.Key("c1"),
		Body: []byte(`{"id":"e","type":"domainEvent","data":{"action":"a"},"published":"2026-01-01T00:00:00Z","publishedLsn":7}`),
	}}
	for want, o := range []outbox.RelayOptions{{Container: contacts, ExpireAfter: time.Minute}, {}} {
		to := &broker{}
		if err := newRelay(t, to, o).Handle(t.Context(), &feed.Batch{Changes: changes}); err != nil ||
			len(to.messages()) != want {
			t.Errorf("%+v: %d published, want %d; %v", o, len(to.messages()), want, err)
		}
	}
}

// An outage is known by several keys that fail, which a quiet service does not have: the relay says it.
func TestAnOutageParksNothingOfAQuietService(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			contacts, leases := open(t)
			want := rename(t, contacts, "c1", 2)
			begun := time.Now()
			to := &broker{fail: func(int, outbox.Message) error {
				if time.Since(begun) < 5*time.Minute {
					return errDown
				}
				return nil
			}}
			relaying(t, contacts, leases, newRelay(t, to, outbox.RelayOptions{}),
				changefeed.Options{Concurrency: concurrency, OnFailure: changefeed.FailurePolicy{
					MaxAttempts: 3,
					DeadLetters: refusing{t},
				}}, func() bool { return len(to.messages()) == len(want) })
			if diff := cmp.Diff(want, to.actions("c1")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnEventWithoutAnIDIsParked(t *testing.T) {
	to := &broker{}
	r := newRelay(t, to, outbox.RelayOptions{Decode: func(c *feed.Change) (outbox.Message, bool, error) {
		return outbox.Message{ID: strings.TrimSuffix(c.ID, "?"), Key: "k", Data: c.Body}, true, nil
	}})
	err := r.Handle(t.Context(), &feed.Batch{Changes: []feed.Change{
		{ID: "1", LSN: 1},
		{ID: "?", LSN: 2},
		{ID: "3", LSN: 3},
	}})
	if !feed.IsPoison(err) || !errors.Is(err, outbox.ErrNoID) || len(to.messages()) != 1 {
		t.Errorf("%d messages are published, %v; want 1 and an ErrNoID that is Poison", len(to.messages()), err)
	}
}
