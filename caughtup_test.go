package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// vague is a source that knows no LSN of its end.
type vague struct{ feed.Source }

func (s vague) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page, err := s.Source.Read(ctx, r, from, o)
	page.Head = 0
	return page, err
}

// slowly is a handler that takes a second for a batch.
func slowly(ctx context.Context, _ *feed.Batch) error {
	select {
	case <-time.After(time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Everything that was written before the call is handled afterwards, and what is written during the wait does not
// extend it: with each kind of source, with several leases on a partition, and in both modes.
func TestCaughtUpWaitsForWhatWasWrittenBefore(t *testing.T) {
	for name, source := range map[string]func(feed.Source) feed.Source{
		"that knows everything": func(s feed.Source) feed.Source { return s },
		"that is only read":     func(s feed.Source) feed.Source { return polled{s} },
	} {
		for _, mode := range []feed.Mode{feed.LatestVersion, feed.AllVersionsAndDeletes} {
			t.Run(fmt.Sprint("a source ", name, ", ", mode), func(t *testing.T) {
				inWorldOf(t, docstore.ContainerSpec{Ranges: 2, Retention: time.Hour}, func(t *testing.T, w *world) {
					writeDuringTheWait(t, w, mode, source(w.orders))
				})
			})
		}
	}
}

func writeDuringTheWait(t *testing.T, w *world, mode feed.Mode, source feed.Source) {
	y := &tally{before: slowly}
	p := w.run("a", y, changefeed.Options{MaxItems: 2, MinLeases: 6, Mode: mode})
	time.Sleep(time.Minute)
	w.fill(60)
	written := time.Now()
	writing, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for i := 0; writing.Err() == nil; i++ {
			w.put(fmt.Sprint("later-", i%50), fmt.Sprint("item-", i), i)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	if err := changefeed.CaughtUp(t.Context(), source, w.leases); err != nil {
		t.Fatal(err)
	}
	y.mu.Lock()
	early := 0
	for name := range y.seen {
		if strings.HasPrefix(name, `["city-`) {
			early++
		}
	}
	y.mu.Unlock()
	if early != 60 || w.pending() == 0 || time.Since(written) > 30*time.Second {
		t.Errorf("%d of 60 changes are handled after %v, %d later ones pending: want all, and some later ones", early,
			time.Since(written), w.pending())
	}
	stop()
	p.stop(t)
}

// A source without any LSN of its end can show only that a range has nothing more.
func TestCaughtUpWithoutAnLSNWaitsUntilNothingIsLeft(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(20)
		p := w.run("a", &tally{before: slowly}, changefeed.Options{MaxItems: 2, Start: feed.FromBeginning()})
		time.Sleep(2 * time.Second)
		if err := changefeed.CaughtUp(t.Context(), vague{w.orders}, w.leases); err != nil || w.pending() != 0 {
			t.Errorf("%v, with %d pending", err, w.pending())
		}
		p.stop(t)
	})
}

// The stored position of an idle lease lies far behind the end of its partition. Nothing in between is its own.
func TestCaughtUpDoesNotWaitForIdleLeases(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{MinLeases: 8, Renew: 50 * time.Second})
		time.Sleep(time.Minute)
		for i := range 20 {
			w.put("oslo", fmt.Sprint(i), i) // all in one of the eight
		}
		begun := time.Now()
		err := p.processor.CaughtUp(t.Context())
		if spent := time.Since(begun); err != nil || spent > time.Second || y.delivered() != 20 {
			t.Errorf("%v after %v, %d of 20 delivered: want all within a second", err, spent, y.delivered())
		}
		p.stop(t)
	})
}

// The leases split, and their instance dies: another one handles the rest.
func TestCaughtUpFollowsSplitsAndNewOwners(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{before: slowly}
		a := w.run("a", y, changefeed.Options{MaxItems: 2, Start: feed.FromBeginning()})
		w.fill(60)
		synctest.Wait() // the unit has its leases
		caught := make(chan error, 1)
		go func() { caught <- changefeed.CaughtUp(t.Context(), polled{w.orders}, w.leases) }()
		time.Sleep(5 * time.Second)
		w.split(0)
		time.Sleep(5 * time.Second)
		a.kill(t)
		w.split(1)
		synctest.Wait()
		if len(caught) > 0 {
			t.Fatalf("caught up while no instance runs: %v", <-caught)
		}
		b := w.run("b", y, changefeed.Options{MaxItems: 2})
		if err := <-caught; err != nil {
			t.Fatal(err)
		}
		if items, _ := y.items(); items != 60 || len(w.records(feed.KindLease)) < 3 {
			t.Errorf("%d items handled on %d leases, want 60 on 3", items, len(w.records(feed.KindLease)))
		}
		b.stop(t)
	})
}

// The position has passed the change that hangs, because its key is set aside. It is not handled for that.
func TestCaughtUpWaitsForKeysThatAreSetAside(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		release := make(chan struct{})
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			if slices.Contains(itemIDs(b), "stuck") {
				<-release
			}
			return nil
		}}
		w.put("oslo", "stuck", 0)
		for i := range 300 {
			w.put("oslo", fmt.Sprint("item-", i), i)
			w.put(fmt.Sprint("city-", i%7), fmt.Sprint("item-", i), i)
		}
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 4, BufferItems: 100, MaxItems: 50,
		})
		w.until(5*time.Minute, "set aside", func() bool {
			return len(w.records(feed.KindLease)) == 1 && w.lag().SetAside == 1
		})
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := p.processor.CaughtUp(short)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(fmt.Sprint(err), `has set aside partition key ["oslo"] at LSN 1`) {
			t.Errorf("%v, want the end of the context and the key", err)
		}
		close(release)
		if err := p.processor.CaughtUp(t.Context()); err != nil || w.pending() != 0 {
			t.Errorf("%v with %d pending, want none", err, w.pending())
		}
		p.stop(t)
	})
}

// A letter keeps the changes of a held key, so they are not waited for.
func TestCaughtUpCountsParkedAndHeldChangesAsHandled(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		bad := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			return feed.Poison(errors.New("no"))
		})
		box := &letterBox{}
		w.put("oslo", "first", 1)
		w.put("oslo", "second", 2)
		p := w.run("a", bad, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box, HoldKeys: true},
		})
		if err := p.processor.CaughtUp(t.Context()); err != nil || len(box.all()) != 2 {
			t.Errorf("%v, %d letters, want 2", err, len(box.all()))
		}
		p.stop(t)
	})
}

// The end of the context names what is behind, and how far it has come.
func TestCaughtUpSaysWhichLeaseIsBehind(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(5)
		if err := p.processor.CaughtUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Pause(ctx, admin.All())
		})
		w.fill(20)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		err := changefeed.CaughtUp(short, w.orders, w.leases)
		for _, want := range []string{
			"the unit has not caught up: paused lease ", " of no instance is at ", "the feed ended at LSN 25",
			"(and 1 more)",
		} {
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v, want the end of the context and %q", err, want)
			}
		}
		if spent := time.Since(begun); spent != time.Minute {
			t.Errorf("it took %v, want the minute of the context", spent)
		}
		p.stop(t)
	})
}

// The function is for a unit that exists. The method may be called before Run has made the leases.
func TestCaughtUpOfAUnitWithoutLeases(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(5)
		err := changefeed.CaughtUp(t.Context(), w.orders, w.leases)
		if !errors.Is(err, feed.ErrNotFound) || !strings.Contains(fmt.Sprint(err), "the unit has no leases") {
			t.Errorf("%v, want that the unit has no leases", err)
		}
		y := &tally{}
		p, err := changefeed.New(w.orders, w.leases, y, changefeed.Options{Start: feed.FromBeginning()})
		if err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.CaughtUp(short); !strings.Contains(fmt.Sprint(err), "the unit has no leases yet") {
			t.Errorf("%v, want that there are no leases yet", err)
		}
		caught := make(chan error, 1)
		go func() { caught <- p.CaughtUp(t.Context()) }()
		time.Sleep(time.Minute)
		running, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- p.Run(running) }()
		if err := <-caught; err != nil || y.delivered() != 5 {
			t.Errorf("%v, %d of 5 delivered", err, y.delivered())
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// A range without a lease has no reader, so its changes are not handled.
func TestCaughtUpWaitsForARangeWithoutALease(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		time.Sleep(time.Minute)
		p.stop(t)
		lease := w.records(feed.KindLease)[0]
		if err := w.leases.Delete(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := changefeed.CaughtUp(short, w.orders, w.leases)
		if want := "no lease covers " + lease.Range.String(); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	})
}

// A store that does not answer for a while is asked again; one that refuses is not.
func TestCaughtUpRetriesUnlessTheStoreRefuses(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		time.Sleep(time.Minute)
		now := time.Now()
		dark := changefeedtest.Blackout(nil, changefeedtest.Window{From: now, To: now.Add(time.Minute)})
		err := changefeed.CaughtUp(t.Context(), dark.Source(w.orders), dark.Leases(w.leases))
		if spent := time.Since(now); err != nil || spent < time.Minute || spent > time.Minute+10*time.Second {
			t.Errorf("%v after %v, want none soon after a minute", err, spent)
		}
		no := changefeedtest.Always(changefeedtest.Refuse(feed.ErrForbidden))
		if err := changefeed.CaughtUp(t.Context(), w.orders, no.Leases(w.leases)); !errors.Is(err, feed.ErrForbidden) {
			t.Errorf("%v, want that it is forbidden", err)
		}
		p.stop(t)
	})
}

// A lease store that is followed tells soon that the last lease is done; polls alone would need four seconds.
func TestCaughtUpHearsOfTheLastCheckpoint(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var handled time.Time
		y := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			time.Sleep(21 * time.Second)
			handled = time.Now()
			return nil
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(1)
		if err := p.processor.CaughtUp(t.Context()); err != nil || time.Since(handled) > time.Second {
			t.Errorf("%v, %v after the change was handled, want less than a second", err, time.Since(handled))
		}
		p.stop(t)
	})
}
