package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// resetKey has a key delivered again by an operator who waits for a minute.
func (w *world) resetKey(city string, to feed.Start) []admin.Step {
	w.t.Helper()
	return operate(w.t, func(ctx context.Context) ([]admin.Step, error) {
		return w.admin(admin.Options{By: "ada", Reason: "INC-2"}).ResetKey(ctx, feed.Key(city), to)
	})
}

// The changes of the key come again from the start, in their order, before its new ones. Other keys go on, and nothing
// of them comes again.
func TestAKeyIsReplayedAndNothingElse(t *testing.T) {
	for name, o := range map[string]changefeed.Options{
		"whole batches": {}, "many at once": {Concurrency: 4},
		"attempts": {MaxItems: 2, OnFailure: changefeed.FailurePolicy{MaxAttempts: 3}},
	} {
		for _, running := range []bool{true, false} {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{}
				o.Start = feed.FromBeginning()
				p := w.run("a", y, o)
				w.put("oslo", "one", 1)
				w.fill(5)
				time.Sleep(2 * time.Second)
				half := time.Now()
				time.Sleep(2 * time.Second)
				for _, id := range []string{"two", "three", "four"} {
					w.put("oslo", id, 1)
					w.put("rome", id, 1)
				}
				time.Sleep(time.Minute)
				before := y.lsns("oslo")
				if !running {
					p.stop(t)
				}
				steps := w.resetKey("oslo", feed.FromBeginning())
				w.put("oslo", "five", 1)
				w.put("rome", "five", 1)
				if !running {
					p = w.run("b", y, o)
				}
				time.Sleep(2 * time.Minute)
				got := y.lsns("oslo")
				if len(got) != 9 || !slices.Equal(got[4:8], before) || got[8] <= before[3] {
					t.Errorf("%s, running %v: oslo %v, want %v again and then a new one", name, running, got, before)
				}
				if items, again := y.items(); items != 14 || again != 4 || w.pending() != 0 {
					t.Errorf("%s, running %v: %d items, %d again, %d pending, want 14, 4 and 0", name, running, items, again,
						w.pending())
				}
				if s := steps[0]; s.Key != feed.Key("oslo") || s.Action != admin.ActionReset {
					t.Errorf("the step is %+v", s)
				}
				w.resetKey("oslo", feed.FromTime(half))
				time.Sleep(2 * time.Minute)
				if got = y.lsns("oslo")[9:]; !slices.Equal(got, append(slices.Clone(before[1:]), y.lsns("oslo")[8])) {
					t.Errorf("%s, running %v: from a time %v, want %v and the last", name, running, got, before[1:])
				}
				if note := w.records(feed.KindLease)[0].Properties[notes.AsideProperty]; note != "" {
					t.Errorf("%s: the lease still says %s", name, note)
				}
				p.stop(t)
				entries, err := w.admin(admin.Options{}).History(t.Context())
				if err != nil || len(entries) != 2 || entries[0].Key != feed.Key("oslo") || entries[0].Done != 1 ||
					entries[0].By != "ada" || len(entries[0].Moves) != 1 {
					t.Errorf("history %+v, %v, want two lines that name oslo", entries, err)
				}
			})
		}
	}
}

// A key that is held behind a dead letter is free after its replay. The letter stays.
func TestAHeldKeyIsReplayedAndFree(t *testing.T) {
	for _, running := range []bool{true, false} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			box := &letterBox{}
			h := newBad()
			o := changefeed.Options{
				Start:     feed.FromBeginning(),
				OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
			}
			p := w.run("a", h, o)
			for _, id := range []string{"first", "bad", "next"} {
				w.put("oslo", id, 1)
			}
			w.fill(5)
			time.Sleep(5 * time.Minute)
			if l := w.lag(); l.Held != 1 {
				t.Fatalf("%d keys are held, want 1", l.Held)
			}
			if !running {
				p.stop(t)
			}
			h.repaired.Store(true)
			w.resetKey("oslo", feed.FromBeginning())
			if !running {
				p = w.run("b", h, o)
			}
			time.Sleep(2 * time.Minute)
			if l := w.lag(); l.Held != 0 || l.Pending != 0 {
				t.Errorf("running %v: %d keys are held, %d pending, want none", running, l.Held, l.Pending)
			}
			if got := h.lsns("oslo"); len(got) != 4 || !slices.IsSorted(got[1:]) || got[1] != got[0] {
				t.Errorf("running %v: oslo %v, want the first, and then all three", running, got)
			}
			if len(box.kept) != 2 {
				t.Errorf("running %v: %d letters, want both to stay", running, len(box.kept))
			}
			p.stop(t)
		})
	}
}

// A replay brings back what was skipped, goes on with the next owner and over a split, and is refused twice.
func TestAReplayGoesOnOverASplit(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := newBad()
		o := changefeed.Options{Start: feed.FromBeginning(), Concurrency: 2}
		p := w.run("a", h, o)
		w.put("oslo", "one", 1)
		w.put("oslo", "bad", 1)
		w.put("oslo", "two", 1)
		w.fill(5)
		time.Sleep(time.Minute)
		if _, err := w.skip(w.onlyBad()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.stop(t)
		h.repaired.Store(true)
		w.resetKey("oslo", feed.FromBeginning())
		_, err := w.admin(admin.Options{}).ResetKey(t.Context(), feed.Key("oslo"), feed.FromBeginning())
		if !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "read again already") {
			t.Errorf("a second replay: %v", err)
		}
		w.split(0)
		p = w.run("b", h, o)
		time.Sleep(2 * time.Minute)
		got := h.lsns("oslo")
		if len(got) != 5 || !slices.IsSorted(got[2:]) || h.times(`["oslo"]bad`) != 1 {
			t.Errorf("oslo %v, want one and two, and then all three", got)
		}
		if items, again := h.items(); items != 8 || again != 2 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, want 8, 2 and 0", items, again, w.pending())
		}
		p.stop(t)
	})
}

// A lease that has begun at a time delivers nothing from before that. A replay does.
func TestAReplayGoesBackBeforeTheStartOfTheLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		w.put("oslo", "old", 1)
		time.Sleep(time.Minute)
		p := w.run("a", y, changefeed.Options{Start: feed.FromTime(time.Now())})
		w.put("oslo", "new", 1)
		w.put("rome", "new", 1)
		time.Sleep(time.Minute)
		w.resetKey("oslo", feed.FromBeginning())
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 3 || again != 1 || len(y.lsns("oslo")) != 3 {
			t.Errorf("%d items, %d again, oslo %v, want the old change, and the new one again", items, again, y.lsns("oslo"))
		}
		p.stop(t)
	})
}

// The only change of its lease since a time is replayed from there, though other leases have later ones.
func TestTheOnlyChangeSinceATimeIsReplayed(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		placeOf := func(city string) string {
			epk, err := w.orders.Locate(t.Context(), feed.Key(city))
			if err != nil {
				t.Fatal(err)
			}
			return epk
		}
		y := &tally{}
		w.fill(5)
		time.Sleep(time.Second)
		since := time.Now()
		time.Sleep(time.Second)
		w.put("oslo", "one", 1)
		of := w.orders.PartitionAt(placeOf("oslo")).Range
		for i := range 100 { // a later change of the other range
			if city := fmt.Sprintf("other-%d", i); !of.Holds(placeOf(city)) {
				w.put(city, "one", 1)
				break
			}
		}
		w.ran(y, changefeed.Options{Start: feed.FromBeginning()})
		if items, again := y.items(); items != 7 || again != 0 {
			t.Fatalf("%d items, %d again: the test shows nothing", items, again)
		}
		w.resetKey("oslo", feed.FromTime(since))
		w.ran(y, changefeed.Options{})
		if items, again := y.items(); items != 7 || again != 1 || len(y.lsns("oslo")) != 2 {
			t.Errorf("%d items, %d again, oslo %v, want oslo twice", items, again, y.lsns("oslo"))
		}
	})
}

// What cannot be is refused before anything is written.
func TestWhatCannotBeReplayedIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		unit := w.admin(admin.Options{})
		_, err := unit.ResetKey(t.Context(), feed.Key("oslo"), feed.FromBeginning())
		if !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("a unit without leases: %v", err)
		}
		w.fill(5)
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		before := w.records(feed.KindLease)[0]
		oslo := feed.Key("oslo")
		for name, c := range map[string]struct {
			key feed.PartitionKey
			to  feed.Start
		}{
			"no start":          {oslo, feed.Start{}},
			"now":               {oslo, feed.FromNow()},
			"a time to come":    {oslo, feed.FromTime(time.Now().Add(time.Hour))},
			"the present":       {oslo, feed.FromTime(time.Now())},
			"no key":            {"", feed.FromBeginning()},
			"no JSON":           {"oslo", feed.FromBeginning()},
			"another hierarchy": {`["oslo","north"]`, feed.FromBeginning()},
		} {
			if _, err := unit.ResetKey(t.Context(), c.key, c.to); !errors.Is(err, feed.ErrBadRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := unit.ResetKeyTo(t.Context(), oslo, before.Position); !errors.Is(err, feed.ErrBadRequest) ||
			!strings.Contains(err.Error(), "want an earlier position") {
			t.Errorf("the position of the lease: %v", err)
		}
		blind := admin.Open(struct{ feed.Source }{w.orders}, w.leases, admin.Options{})
		if _, err := blind.ResetKey(t.Context(), oslo, feed.FromBeginning()); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a source that cannot read a key: %v", err)
		}
		w.edit(func(l *feed.Record) { l.Owner, l.Epoch, l.Timestamp = "net", "", time.Now() })
		if _, err := unit.ResetKey(t.Context(), oslo, feed.FromBeginning()); !errors.Is(err, feed.ErrForeignOwner) {
			t.Errorf("a lease of another processor: %v", err)
		}
		before = w.edit(func(l *feed.Record) { l.Owner = "" })
		steps, err := w.admin(admin.Options{DryRun: true}).ResetKey(t.Context(), `[ "oslo" ]`, feed.FromBeginning())
		if err != nil || len(steps) != 1 || steps[0].Done || steps[0].Key != oslo {
			t.Errorf("a dry run: %+v, %v", steps, err)
		}
		if after := w.records(feed.KindLease)[0]; after.ETag != before.ETag {
			t.Errorf("the lease was written: %v", after)
		}
		if n := len(w.records(feed.KindHistory)); n != 0 {
			t.Errorf("%d histories, want none", n)
		}
	})
}
