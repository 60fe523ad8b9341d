package changefeed_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// make creates a lease of the whole key space at a position, as nobody's.
func (w *world) make(at feed.Position, properties map[string]string) {
	w.t.Helper()
	r := feed.FullRange()
	if _, err := w.leases.Create(w.t.Context(), feed.Record{
		Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r, Position: at, Properties: properties,
	}); err != nil {
		w.t.Fatal(err)
	}
}

// move moves the only lease to a position, as nobody's.
func (w *world) move(lsn int64) {
	w.t.Helper()
	w.edit(func(l *feed.Record) { l.Position.Token = w.orders.TokenAfter(lsn) })
}

// measure makes the next estimate.
func (w *world) measure(e *changefeed.Estimator, source feed.Source) changefeed.Estimation {
	w.t.Helper()
	est, err := e.Measure(w.t.Context(), source, w.leases)
	if err != nil {
		w.t.Fatal(err)
	}
	return est
}

// The pace of a lease is how many changes lie between its positions, and when it will have caught up says how fast its
// backlog falls, of which what was written meanwhile is a part.
func TestThePaceOfALeaseComesFromSuccessiveEstimates(t *testing.T) {
	for name, uncounted := range map[string]bool{"counted": false, "distances": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				source := feed.Source(w.orders)
				if uncounted {
					source = struct {
						feed.Source
						feed.Sequencer
					}{w.orders, w.orders}
				}
				var e changefeed.Estimator
				w.fill(60)
				w.make(feed.Position{Start: feed.FromBeginning(), Token: w.orders.TokenAfter(0)}, nil)
				step := func(to int64, written int, want *changefeed.Pace) {
					t.Helper()
					time.Sleep(10 * time.Second)
					for range written {
						w.put("oslo", fmt.Sprint(w.orders.Head()), 1)
					}
					w.move(to)
					est := w.measure(&e, source)
					if got := est.Leases[0].Pace; got == nil || *got != *want {
						t.Errorf("at %d: pace %+v, want %+v", to, got, want)
					}
					if got := est.Total.Pace; got == nil || *got != *want {
						t.Errorf("at %d: pace of the unit %+v, want %+v", to, got, want)
					}
				}
				if l := w.measure(&e, source).Leases[0]; l.Pace != nil || l.Pending != 60 {
					t.Errorf("the first estimate has pace %+v, %d pending", l.Pace, l.Pending)
				}
				exact := !uncounted
				step(20, 0, &changefeed.Pace{PerSecond: 2, Exact: exact, CatchUp: 20 * time.Second})
				step(30, 5, &changefeed.Pace{PerSecond: 1, Exact: exact, CatchUp: 70 * time.Second})
				step(40, 10, &changefeed.Pace{PerSecond: 1, Exact: exact, CatchUp: changefeed.Never})
				step(40, 0, &changefeed.Pace{PerSecond: 0, Exact: true, CatchUp: changefeed.Never})
				step(w.orders.Head(), 0, &changefeed.Pace{PerSecond: 3.5, Exact: exact})
				time.Sleep(10 * time.Second)
				w.move(10) // an operator
				if got := w.measure(&e, source).Leases[0].Pace; got != nil {
					t.Errorf("the pace of a lease that was reset is %+v", got)
				}
			})
		})
	}
}

// The time to catch up is that of the slowest lease, and rates add up. A lease that is new makes both unknown.
func TestThePaceOfAUnitIsThatOfItsSlowestLease(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(40)
		for _, p := range w.partitions() {
			if _, err := w.leases.Create(t.Context(), feed.Record{
				Kind: feed.KindLease, Version: 1, Token: p.Range.String(), Range: p.Range,
				Position: feed.Position{Start: feed.FromBeginning(), Token: w.orders.TokenAfter(0)},
			}); err != nil {
				t.Fatal(err)
			}
		}
		var e changefeed.Estimator
		w.measure(&e, w.orders)
		time.Sleep(10 * time.Second)
		for i, l := range w.records(feed.KindLease) {
			l.Position.Token = w.orders.TokenAfter(int64(10 + 10*i))
			if _, err := w.leases.Update(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		est := w.measure(&e, w.orders)
		a, b, sum := est.Leases[0].Pace, est.Leases[1].Pace, est.Total.Pace
		if a == nil || b == nil || sum == nil || sum.PerSecond != a.PerSecond+b.PerSecond || sum.PerSecond <= 0 ||
			a.CatchUp == b.CatchUp || sum.CatchUp != max(a.CatchUp, b.CatchUp) {
			t.Errorf("paces %+v and %+v, of the unit %+v", a, b, sum)
		}
		w.edit(func(l *feed.Record) { l.State = feed.StateSplitting })
		time.Sleep(10 * time.Second)
		if got := w.measure(&e, w.orders).Total.Pace; got != nil {
			t.Errorf("the pace of a unit with a changed lease is %+v", got)
		}
	})
}

// A lease is stuck if something is pending and nobody handles it. Each reason has a word.
func TestAStuckLeaseSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(w *world, l *feed.Record)
		want []feed.Stuck
	}{
		{"at work", func(*world, *feed.Record) {}, nil},
		{"nothing is pending", func(w *world, l *feed.Record) {
			l.Owner, l.Position.Token = "", w.orders.TokenAfter(w.orders.Head())
		}, nil},
		{
			"no instance runs", func(_ *world, l *feed.Record) { l.Owner, l.Epoch = "", "" },
			[]feed.Stuck{feed.StuckStopped},
		},
		{"nobody has it, and others run", func(w *world, l *feed.Record) {
			l.Owner, l.Epoch = "", ""
			if _, err := w.leases.Create(w.t.Context(), feed.Record{Kind: feed.KindHost, Token: "b"}); err != nil {
				w.t.Fatal(err)
			}
		}, []feed.Stuck{feed.StuckFree}},
		{"nobody has it, and the others are gone", func(w *world, l *feed.Record) {
			l.Owner, l.Epoch = "", ""
			if _, err := w.leases.Create(w.t.Context(), feed.Record{
				Kind: feed.KindHost, Token: "b", Expiration: time.Second,
			}); err != nil {
				w.t.Fatal(err)
			}
		}, []feed.Stuck{feed.StuckStopped}},
		{
			"the owner is silent", func(_ *world, l *feed.Record) { l.Expiration = time.Second },
			[]feed.Stuck{feed.StuckExpired},
		},
		{"paused", func(_ *world, l *feed.Record) {
			l.Owner, l.Epoch = "", ""
			records.MarkPaused(l, time.Now())
		}, []feed.Stuck{feed.StuckPaused, feed.StuckStopped}},
		{"paused, and instances run", func(w *world, l *feed.Record) {
			l.Owner, l.Epoch = "", ""
			records.MarkPaused(l, time.Now())
			if _, err := w.leases.Create(w.t.Context(), feed.Record{
				Kind: feed.KindHost, Token: "b", Owner: "b", Epoch: "1", Expiration: time.Minute,
			}); err != nil {
				w.t.Fatal(err)
			}
		}, []feed.Stuck{feed.StuckPaused}},
		{"an outage", func(_ *world, l *feed.Record) {
			records.SetProperty(l, notes.OutageProperty, notes.Outage(time.Now()))
		}, []feed.Stuck{feed.StuckOutage}},
		{"an outage of an owner that is another", func(_ *world, l *feed.Record) {
			l.Epoch = ""
			records.SetProperty(l, notes.OutageProperty, notes.Outage(time.Now()))
		}, nil},
		{"failing", func(_ *world, l *feed.Record) { l.Attempts = 3 }, []feed.Stuck{feed.StuckFailing}},
		{"being split", func(_ *world, l *feed.Record) { l.State = feed.StateSplitting }, nil},
		{"being split, by an owner that is silent", func(_ *world, l *feed.Record) {
			l.State, l.Expiration = feed.StateSplitting, time.Second
		}, []feed.Stuck{feed.StuckExpired}},
		{
			"ahead", func(w *world, l *feed.Record) { l.Position.Token = w.orders.TokenAfter(999) },
			[]feed.Stuck{feed.StuckAhead},
		},
		{"no start", func(_ *world, l *feed.Record) { l.Position = feed.Position{} }, []feed.Stuck{feed.StuckNoStart}},
		{"broken", func(_ *world, l *feed.Record) { l.State = "future" }, []feed.Stuck{feed.StuckBroken}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.fill(3)
				w.make(feed.Position{Start: feed.FromBeginning()}, nil)
				w.edit(func(l *feed.Record) {
					l.Owner, l.Epoch = "a", "e1"
					c.edit(w, l)
				})
				time.Sleep(10 * time.Second)
				var e changefeed.Estimator
				for range 2 { // the second time after half a minute
					est := w.measure(&e, w.orders)
					got, all := est.Leases[0].Stuck, est.Total.Stuck
					if !slices.Equal(got, c.want) || !slices.Equal(all, c.want) {
						t.Errorf("stuck because %v, the unit because %v, want %v", got, all, c.want)
					}
					time.Sleep(30 * time.Second)
				}
			})
		})
	}
}

// An owner that writes its lease and handles nothing is found by the oldest change, which stays.
func TestALeaseWhoseOldestChangeStaysIsStill(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		w.put("rome", "2", 2)
		w.make(feed.Position{Start: feed.FromBeginning()}, nil)
		var e changefeed.Estimator
		isStill := func(want bool) {
			t.Helper()
			w.edit(func(l *feed.Record) { l.Owner = "a" })
			if got := slices.Contains(w.measure(&e, w.orders).Leases[0].Stuck, feed.StuckStill); got != want {
				t.Errorf("still: %t, want %t", got, want)
			}
		}
		isStill(false)
		time.Sleep(5*time.Minute - time.Second)
		isStill(false)
		time.Sleep(time.Second)
		isStill(true)
		w.move(1)
		isStill(false)
		time.Sleep(5 * time.Minute)
		isStill(true)
		w.move(2)
		isStill(false)
	})
}

// What is set aside, and what is held, holds the watermark back. It is never later than what is not handled.
func TestKeysThatWaitHoldTheWatermarkBack(t *testing.T) {
	const quiet = 10 * time.Minute
	for _, c := range []struct {
		name      string
		property  func(w *world, at string, lsn int64) (name, text string)
		since     []feed.Write // with these writes the change that waits is no longer in the feed
		uncounted bool
		known     bool
	}{
		{name: "set aside", property: asideNote, known: true},
		{name: "set aside, of a source that cannot count", property: asideNote, uncounted: true, known: true},
		{
			name: "set aside, of a source that cannot count, and deleted since", property: asideNote, uncounted: true,
			since: []feed.Write{{Op: feed.WriteDelete, ID: "1"}},
		},
		{name: "held", property: heldNote, known: true},
		{name: "held, and so is a later key, which the note names first", property: laterHeldNote, known: true},
		{
			name: "held, and overwritten since", property: heldNote,
			since: []feed.Write{upsert("oslo", "1", 2)},
		},
		{name: "held for nobody knows how long", property: func(w *world, at string, _ int64) (string, string) {
			return heldNote(w, at, 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				lsn := w.put("oslo", "1", 1)
				began := time.Now()
				time.Sleep(quiet)
				if c.since != nil {
					if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), c.since); err != nil {
						t.Fatal(err)
					}
				}
				w.put("rome", "2", 1)
				at := w.orders.TokenAfter(w.orders.Head())
				name, text := c.property(w, at, lsn)
				w.make(feed.Position{Token: at, Start: feed.FromBeginning()}, map[string]string{name: text})
				time.Sleep(quiet)
				source := feed.Source(w.orders)
				if c.uncounted {
					source = struct {
						feed.Source
						feed.Sequencer
					}{w.orders, w.orders}
				}
				est := w.measure(new(changefeed.Estimator), source)
				mark := est.Total.Watermark
				switch {
				case !c.known && !mark.IsZero():
					t.Errorf("watermark %v, want none", mark)
				case c.known && (mark.After(began) || began.Sub(mark) > 5*time.Second):
					t.Errorf("watermark %v, want at most 5 s before %v, when the change that waits was written", mark, began)
				}
				w.edit(func(l *feed.Record) { records.SetProperty(l, name, "") })
				mark = w.measure(new(changefeed.Estimator), source).Total.Watermark
				if est.At.Sub(mark) > 10*time.Second {
					t.Errorf("watermark %v at %v though nothing waits", mark, est.At)
				}
			})
		})
	}
}

// asideNote is the note of a lease that has set the key oslo aside.
func asideNote(w *world, at string, lsn int64) (name, text string) {
	p := w.partitions()[0]
	return notes.AsideProperty, notes.Aside{
		At: at, Partition: notes.Name(p.Range.Min, p.Range.Max, noted(p)),
		Keys: []notes.AsideKey{{
			Key: string(feed.Key("oslo")), From: w.orders.TokenAfter(lsn - 1), LSN: lsn, Passed: true,
		}},
	}.String()
}

// heldNote is the note of a lease that holds the key oslo.
func heldNote(w *world, at string, lsn int64) (name, text string) {
	p := w.partitions()[0]
	held := notes.Held{
		At: at, Partition: notes.Name(p.Range.Min, p.Range.Max, noted(p)),
		Keys: []string{string(feed.Key("oslo"))}, Since: []int64{lsn},
	}
	return notes.HeldProperty, held.String()
}

// laterHeldNote is the note of a lease that holds two keys: rome, since the newest change, and oslo.
func laterHeldNote(w *world, at string, lsn int64) (name, text string) {
	p := w.partitions()[0]
	held := notes.Held{
		At: at, Partition: notes.Name(p.Range.Min, p.Range.Max, noted(p)),
		Keys: []string{string(feed.Key("rome")), string(feed.Key("oslo"))}, Since: []int64{w.orders.Head(), lsn},
	}
	return notes.HeldProperty, held.String()
}

// noted returns a partition in the form of package notes.
func noted(p feed.Partition) []notes.Partition {
	return []notes.Partition{{ID: p.ID, Min: p.Range.Min, Max: p.Range.Max}}
}

// A watermark is a claim about every key: without a lease for some, or with a lease that nobody can measure, there is
// none, and no total.
func TestAUnitWithAHoleHasNoTotal(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(5)
		halves := feed.FullRange().Cut(2)
		create := func(r feed.Range, at feed.Position) {
			t.Helper()
			if _, err := w.leases.Create(t.Context(), feed.Record{
				Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r, Position: at,
			}); err != nil {
				t.Fatal(err)
			}
		}
		create(halves[0], feed.Position{Start: feed.FromBeginning()})
		total := func() changefeed.Lag { return w.measure(new(changefeed.Estimator), w.orders).Total }
		if got := total(); !errors.Is(got.Err, feed.ErrHole) || !got.Watermark.IsZero() || got.Exact {
			t.Errorf("total %+v, want none because of the hole", got)
		}
		create(halves[1], feed.Position{})
		if got := total(); !errors.Is(got.Err, feed.ErrNoStart) || !got.Watermark.IsZero() || got.Exact {
			t.Errorf("total %+v, want none because of the lease without a start", got)
		}
		for _, l := range w.records(feed.KindLease) {
			l.Position = feed.Position{Start: feed.FromBeginning()}
			if _, err := w.leases.Update(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		if got := total(); got.Err != nil || got.Pending != 5 || !got.Exact || got.Watermark.IsZero() {
			t.Errorf("total %+v, want 5", got)
		}
		create(feed.FullRange(), feed.Position{Start: feed.FromBeginning()})
		if got := total(); got.Err != nil || got.Pending != 10 || got.Exact || !got.Shared {
			t.Errorf("total %+v of leases that overlap, want a bound", got)
		}
	})
}

// WatchLag goes on through errors, pauses between estimates, and ends with its context.
func TestTheLagIsWatchedUntilTheEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(9)
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var calls atomic.Int64
		sometimes := troubledList{w.leases, func() error {
			if calls.Add(1) == 2 {
				return errCutOff
			}
			return nil
		}}
		var seen []string
		began := time.Now()
		for est, err := range changefeed.WatchLag(ctx, w.orders, sometimes, 10*time.Second) {
			switch {
			case err != nil:
				seen = append(seen, "error")
			case est.Total.Pace == nil:
				seen = append(seen, "no pace")
			case est.Total.Pending == 0 && est.Total.Pace.CatchUp == 0:
				seen = append(seen, "pace")
			}
			if len(seen) == 4 {
				cancel()
			}
		}
		if want := []string{"no pace", "error", "pace", "pace"}; !slices.Equal(seen, want) ||
			time.Since(began) != 30*time.Second {
			t.Errorf("%q within %v, want %q within 30s", seen, time.Since(began), want)
		}
		for est, err := range p.processor.WatchLag(t.Context(), 0) {
			if err != nil || len(est.Leases) != 1 || est.Leases[0].Lease.Owner != "a" {
				t.Errorf("%+v, %v, want the lease of the running instance", est, err)
			}
			break
		}
		p.stop(t)
	})
}

// troubledList is a lease store whose listings may fail.
type troubledList struct {
	feed.LeaseStore
	before func() error
}

// List lists the records.
func (s troubledList) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	if err := s.before(); err != nil {
		return nil, time.Time{}, err
	}
	return s.LeaseStore.List(ctx)
}

// A change may have its time, and be seen a little later. The watermark leaves time for that, also with whole seconds.
func TestAWatermarkLeavesTimeForChangesThatAreOnTheirWay(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.make(feed.Position{Start: feed.FromBeginning()}, nil)
		time.Sleep(time.Minute + 900*time.Millisecond)
		est := w.measure(new(changefeed.Estimator), w.orders)
		if mark := est.Total.Watermark; mark.Nanosecond() != 0 || est.At.Sub(mark) < 5*time.Second ||
			est.At.Sub(mark) > 6*time.Second {
			t.Errorf("watermark %v at %v, want a whole second, 5 to 6 s before", mark, est.At)
		}
	})
}

// The watermark of a unit is that of the lease that is furthest behind, and unknown if that of one lease is.
func TestTheWatermarkOfAUnitIsThatOfItsLastLease(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(20)
		began := time.Now()
		time.Sleep(time.Minute)
		parts := w.partitions()
		for behind := range parts {
			for i, p := range parts {
				lease := feed.Record{
					Kind: feed.KindLease, Version: 1, Token: p.Range.String(), Range: p.Range,
					Position: feed.At(w.orders.TokenAfter(w.orders.Head())),
				}
				if i == behind {
					lease.Position.Token = w.orders.TokenAfter(1)
				}
				if _, err := w.leases.Create(t.Context(), lease); err != nil {
					t.Fatal(err)
				}
			}
			est := w.measure(new(changefeed.Estimator), w.orders)
			if mark := est.Total.Watermark; mark.IsZero() || mark.After(began) {
				t.Errorf("lease %d is behind: watermark %v, want %v", behind, mark, began)
			}
			l := w.records(feed.KindLease)[1-behind]
			name, text := heldNote(w, l.Position.Token, 0)
			records.SetProperty(&l, name, text)
			if _, err := w.leases.Update(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			if mark := w.measure(new(changefeed.Estimator), w.orders).Total.Watermark; !mark.IsZero() {
				t.Errorf("lease %d has no watermark, that of the unit is %v", 1-behind, mark)
			}
			for _, l := range w.records(feed.KindLease) {
				if err := w.leases.Delete(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A lease of another kind of processor is measured, also its pace, and still says that this processor cannot work on
// it.
func TestALeaseOfAnotherKindIsMeasuredAndSaysSo(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(7)
		moveTo := func(lsn int) {
			t.Helper()
			java := `{"id":"` + w.leases.Prefix() + `..0","_etag":null,"LeaseToken":"0","ContinuationToken":"STATE",` +
				`"timestamp":"2022-11-15T17:43:34.634427001Z","Owner":"java","feedRange":null}`
			state := fmt.Sprintf(`{"V":1,"Rid":"r","Mode":"INCREMENTAL","StartFrom":{"Type":"LEASE","Etag":"\"%d\""}}`,
				lsn)
			java = strings.Replace(java, "STATE", base64.StdEncoding.EncodeToString([]byte(state)), 1)
			if _, err := w.container.Upsert(t.Context(), []byte(java)); err != nil {
				t.Fatal(err)
			}
		}
		moveTo(2)
		var e changefeed.Estimator
		est := w.measure(&e, w.orders)
		if l := est.Leases[0]; !errors.Is(l.Err, feed.ErrForeignLease) || !l.Known() || l.Pending != 5 || !l.Exact ||
			l.Lease.Range != feed.FullRange() {
			t.Errorf("lag %+v, want 5 pending of a foreign lease", l)
		}
		if total := est.Total; total.Err != nil || total.Pending != 5 || total.Watermark.IsZero() {
			t.Errorf("total %+v, want 5 pending", total)
		}
		time.Sleep(10 * time.Second)
		moveTo(4)
		want := changefeed.Pace{PerSecond: 0.2, Exact: true, CatchUp: 15 * time.Second}
		if got := w.measure(&e, w.orders).Leases[0].Pace; got == nil || *got != want {
			t.Errorf("pace %+v, want %+v", got, want)
		}
	})
}

// omitting is a source that omits the changes of its first page, as a source omits those before a start time.
type omitting struct{ feed.Source }

// Read reads a page.
func (s omitting) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	page, err := s.Source.Read(ctx, r, from, o)
	if from.Token == "" {
		page.Changes = nil
	}
	return page, err
}

// Behind a page without a change there may be others. An idle lease is not read for ever all the same.
func TestAPageWithoutAChangeIsNotTheEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(130)
		w.make(feed.Position{Start: feed.FromBeginning()}, nil)
		for name, source := range map[string]feed.Source{
			"with LSNs": struct {
				feed.Source
				feed.Sequencer
			}{omitting{w.orders}, w.orders},
			"without LSNs": omitting{w.orders},
		} {
			if l := w.measure(new(changefeed.Estimator), source).Leases[0]; l.Pending != 30 || !l.Exact {
				t.Errorf("%s: %d pending, exact %t, want the 30 behind the first page", name, l.Pending, l.Exact)
			}
		}
	})
}

// brief is a source whose pages have at most 3 changes.
type brief struct{ feed.Source }

// Read reads a page.
func (s brief) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	o.MaxItems = 3
	return s.Source.Read(ctx, r, from, o)
}

// Only pages without a change say that the end may be reached, however many pages have been read.
func TestManySmallPagesAreCountedToTheEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(50)
		w.make(feed.Position{Start: feed.FromBeginning()}, nil)
		if l := w.measure(new(changefeed.Estimator), brief{w.orders}).Leases[0]; l.Pending != 50 || !l.Exact {
			t.Errorf("%d pending, exact %t, want 50", l.Pending, l.Exact)
		}
	})
}

// While a key is set aside, the position moves past its changes. The lease is still all the same, and a lease that
// handles these changes has a pace although its position stays.
func TestAKeySetAsideIsMeasuredBesideThePosition(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		lsn := w.put("oslo", "1", 1)
		w.put("oslo", "2", 1)
		w.put("rome", "3", 1)
		w.put("rome", "4", 1)
		at := w.orders.TokenAfter(3)
		name, text := asideNote(w, at, lsn)
		w.make(feed.Position{Token: at, Start: feed.FromBeginning()}, map[string]string{name: text})
		var e changefeed.Estimator
		measures := func(pending int64, still bool) *changefeed.Pace {
			t.Helper()
			w.edit(func(l *feed.Record) { l.Owner = "a" })
			l := w.measure(&e, w.orders).Leases[0]
			if got := slices.Contains(l.Stuck, feed.StuckStill); got != still || l.Pending != pending || !l.Exact {
				t.Errorf("still: %t, want %t; %d pending, exact %t, want %d", got, still, l.Pending, l.Exact, pending)
			}
			return l.Pace
		}
		measures(3, false)
		time.Sleep(5*time.Minute - 10*time.Second)
		w.move(4)
		measures(2, false)
		time.Sleep(10 * time.Second)
		measures(2, true)
		time.Sleep(10 * time.Second)
		w.edit(func(l *feed.Record) { records.SetProperty(l, name, "") })
		want := changefeed.Pace{PerSecond: 0.2, Exact: true}
		if got := measures(0, false); got == nil || *got != want {
			t.Errorf("pace %+v of a lease that handled a key set aside, want %+v", got, want)
		}
	})
}

// A bound and a count cannot be compared: between the two a lease has no pace.
func TestALeaseHasNoPaceBetweenABoundAndACount(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(2000)
		half := feed.FullRange().Cut(2)[0]
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: half.String(), Range: half,
			Position: feed.Position{Start: feed.FromBeginning(), Token: w.orders.TokenAfter(0)},
		}); err != nil {
			t.Fatal(err)
		}
		source := struct {
			feed.Source
			feed.Sequencer
		}{w.orders, w.orders}
		var e changefeed.Estimator
		for _, c := range []struct {
			to     int64
			shared bool
			pace   bool
		}{
			{0, true, false},
			{100, true, true},
			{1900, false, false},
			{1950, false, true},
			{100, true, false},
		} {
			w.move(c.to)
			l := w.measure(&e, source).Leases[0]
			if l.Shared != c.shared || l.Exact == c.shared || (l.Pace != nil) != c.pace {
				t.Errorf("at %d: shared %t, exact %t, pace %+v", c.to, l.Shared, l.Exact, l.Pace)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// An owner is silent by the clock of the lease store, also if the clock of the estimator is wrong.
func TestTheSilenceOfAnOwnerIsOfTheStoresClock(t *testing.T) {
	for _, fast := range []time.Duration{-time.Hour, time.Hour} {
		for quiet, want := range map[time.Duration][]feed.Stuck{
			10 * time.Second: nil,
			10 * time.Minute: {feed.StuckExpired},
		} {
			t.Run(fmt.Sprint(fast, " for ", quiet), func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) {
					w.fill(3)
					w.make(feed.Position{Start: feed.FromBeginning()}, nil)
					w.edit(func(l *feed.Record) { l.Owner, l.Epoch = "a", "e1" })
					time.Sleep(quiet)
					store := &hookedStore{Leases: w.leases}
					store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
						all, now, err := w.leases.List(ctx)
						for i := range all {
							all[i].Updated = all[i].Updated.Add(fast)
						}
						return all, now.Add(fast), err
					}
					est, err := new(changefeed.Estimator).Measure(t.Context(), w.orders, store)
					if err != nil || !slices.Equal(est.Leases[0].Stuck, want) {
						t.Errorf("%v, %v, want %v", est.Leases[0].Stuck, err, want)
					}
				})
			})
		}
	}
}
