package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// history reads the history of the unit.
func (w *world) history() []admin.Entry {
	w.t.Helper()
	entries, err := w.admin(admin.Options{}).History(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return entries
}

// Every action leaves a line with who, when, what and why, with instances or without; a dry run, and a call that
// changes nothing, leave none.
func TestEachActionLeavesALine(t *testing.T) {
	for _, running := range []bool{true, false} {
		inWorld(t, 2, func(t *testing.T, w *world) {
			p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
			w.fill(10)
			time.Sleep(time.Minute)
			if !running {
				p.stop(t)
			}
			unit := w.admin(admin.Options{By: "ada", Reason: "INC-4711"})
			taken, err := unit.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if entries := w.history(); len(entries) != 0 {
				t.Errorf("the history of a unit that nobody has steered is %+v", entries)
			}
			begun := time.Now()
			act := func(do func(context.Context) ([]admin.Step, error)) []admin.Step { return operate(t, do) }
			act(func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
			reset := act(func(ctx context.Context) ([]admin.Step, error) {
				return unit.Reset(ctx, admin.All(), feed.FromBeginning())
			})
			act(func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
			act(func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
			dry := w.admin(admin.Options{DryRun: true})
			if _, err := dry.Pause(t.Context(), admin.All()); err != nil {
				t.Error(err)
			}
			if _, err := dry.Restore(t.Context(), taken); err != nil {
				t.Error(err)
			}
			one := w.records(feed.KindLease)[0].Range
			act(func(ctx context.Context) ([]admin.Step, error) { return unit.Restore(ctx, taken) })
			act(func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.Of(one)) })
			entries := w.history()
			var did []string
			for _, e := range entries {
				did = append(did, fmt.Sprint(e.Action, " ", e.Range, " ", e.Done, "/", e.Count, " ", len(e.Moves)))
				if e.By != "ada" || e.Reason != "INC-4711" || e.Failed != "" || e.At.Before(begun) ||
					e.At.After(time.Now()) {
					t.Errorf("the line is %+v", e)
				}
			}
			want := []string{
				"pause -FF 2/2 0", "reset -FF 2/2 2", "resume -FF 2/2 0", "restore -FF 2/2 2",
				"pause " + one.String() + " 1/1 0",
			}
			if !slices.Equal(did, want) {
				t.Fatalf("the history is %q, want %q", did, want)
			}
			for i, m := range entries[1].Moves {
				if s := reset[i]; m.Lease != s.Lease.Token || m.From != s.Lease.Position || m.To != s.To {
					t.Errorf("the line says %+v, and the step was %+v", m, s)
				}
			}
			if running {
				p.stop(t)
			}
		})
	}
}

// A restore of a unit without leases, which makes them, is in the history too.
func TestARestoreThatMakesAUnitIsInItsHistory(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		taken, err := w.admin(admin.Options{}).Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other := admin.Open(w.orders, w.unit("other"), admin.Options{By: "ada"})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return other.Restore(ctx, taken) })
		entries, err := other.History(t.Context())
		if err != nil || len(entries) != 1 || entries[0].Action != admin.ActionRestore || entries[0].Done != 2 {
			t.Errorf("the history is %+v, %v, want a restore of 2 leases", entries, err)
		}
		_, err = admin.Open(w.orders, w.unit("nobody"), admin.Options{}).History(t.Context())
		if !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("the history of a unit that does not exist: %v, want %v", err, feed.ErrNotFound)
		}
	})
}

// Operators who act at once lose no line.
func TestOperatorsAtOnceLoseNoLine(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		var all sync.WaitGroup
		for i, lease := range w.records(feed.KindLease) {
			all.Go(func() {
				unit := w.admin(admin.Options{By: fmt.Sprint("operator ", i)})
				for range 5 {
					if _, err := unit.ResetTo(t.Context(), admin.Of(lease.Range), feed.At(`"0"`)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		lines := map[string]int{}
		for _, e := range w.history() {
			lines[e.By]++
		}
		for i := range 8 {
			if n := lines[fmt.Sprint("operator ", i)]; n != 5 {
				t.Errorf("operator %d has %d lines, want 5", i, n)
			}
		}
	})
}

// A write whose answer is lost is not written twice.
func TestALineWhoseAnswerIsLostIsWrittenOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		lost := 0
		store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, r feed.Record) (feed.Record, error) {
			got, err := w.leases.Create(ctx, r)
			if r.Kind == feed.KindHistory && err == nil {
				lost++
				return r, errCutOff
			}
			return got, err
		}}
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return admin.Open(w.orders, store, admin.Options{}).Pause(ctx, admin.All())
		})
		if entries := w.history(); lost != 1 || len(entries) != 1 {
			t.Errorf("%d answers were lost, and the history is %+v, want one of each", lost, entries)
		}
	})
}

// If the line cannot be written, the error says that the action was carried out, and the steps are done.
func TestAnActionThatIsNotRecordedSaysSo(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, r feed.Record) (feed.Record, error) {
			if r.Kind == feed.KindHistory {
				return r, errCutOff
			}
			return w.leases.Create(ctx, r)
		}}
		begun := time.Now()
		steps, err := admin.Open(w.orders, store, admin.Options{}).Pause(t.Context(), admin.All())
		if !errors.Is(err, admin.ErrNotRecorded) || !errors.Is(err, errCutOff) ||
			!strings.HasPrefix(err.Error(), "pause was carried out, and") || len(steps) != 1 || !steps[0].Done {
			t.Errorf("got %+v, %v", steps, err)
		}
		if spent := time.Since(begun); spent < 5*time.Second || spent > 15*time.Second {
			t.Errorf("the line was given up after %v, want about 10 s", spent)
		}
		if owners := w.owners(); owners[""] != 1 {
			t.Errorf("owners %v, want a paused lease", owners)
		}
	})
}

// An action that does not end has a line that says why, although its context has ended.
func TestAnActionThatFailsLeavesALine(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.wire.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := w.admin(admin.Options{By: "ada"}).Pause(ctx, admin.All())
		if !errors.Is(err, admin.ErrNotServed) || errors.Is(err, admin.ErrNotRecorded) {
			t.Errorf("got %v, want %v", err, admin.ErrNotServed)
		}
		entries := w.history()
		if len(entries) != 1 || entries[0].Done != 0 || entries[0].Count != 1 || entries[0].Failed != err.Error() {
			t.Errorf("the history is %+v, want a pause of a lease that failed: %v", entries, err)
		}
		p.wire.Mend()
		p.stop(t)
	})
}

// The history keeps the newest lines, and ignores neither a document that was edited nor one that was deleted.
func TestAHistoryIsBoundedAndRepaired(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		reset := func(by string) error {
			unit := w.admin(admin.Options{By: by, Reason: strings.Repeat("é", 3000)})
			_, err := unit.ResetTo(t.Context(), admin.All(), feed.At(`"0"`))
			return err
		}
		for i := range 70 {
			if err := reset(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		entries, record := w.history(), w.records(feed.KindHistory)[0]
		last := entries[len(entries)-1]
		if n := len(record.Properties[notes.HistoryProperty]); n > notes.MaxHistory || n < notes.MaxHistory/2 {
			t.Errorf("the history has %d bytes, want %d at most", n, notes.MaxHistory)
		}
		if last.By != "69" || len(last.Reason) > notes.MaxCause || !strings.HasSuffix(last.Reason, "é…") {
			t.Errorf("the last line is by %q, with a reason of %d bytes", last.By, len(last.Reason))
		}
		record.Properties = notes.Set(record.Properties, notes.HistoryProperty, "nothing")
		record, err := w.leases.Update(t.Context(), record)
		if err != nil {
			t.Fatal(err)
		}
		if err := reset("late"); !errors.Is(err, admin.ErrNotRecorded) || !strings.Contains(err.Error(), record.ID) {
			t.Errorf("a reset with a history that was edited: %v, want %v and its id", err, admin.ErrNotRecorded)
		}
		if _, err := w.admin(admin.Options{}).History(t.Context()); !errors.Is(err, feed.ErrBadLease) {
			t.Errorf("a history that was edited: %v, want %v", err, feed.ErrBadLease)
		}
		if err := w.leases.Delete(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		if err := reset("later"); err != nil {
			t.Error(err)
		}
		if entries := w.history(); len(entries) != 1 || entries[0].By != "later" {
			t.Errorf("the new history is %+v", entries)
		}
	})
}

// Instances and other tools leave the history alone, and the history changes nothing for them.
func TestInstancesIgnoreTheHistory(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Reset(ctx, admin.All(), feed.FromBeginning())
		})
		before := w.records(feed.KindHistory)[0]
		w.fill(10)
		time.Sleep(time.Hour)
		after := w.records(feed.KindHistory)
		if len(after) != 1 || after[0].ETag != before.ETag || w.pending() != 0 {
			t.Errorf("after an hour the history is %+v, %d pending, want it as it was, and 0", after, w.pending())
		}
		if err := p.errs.all(); len(err) > 0 {
			t.Errorf("errors: %v", err)
		}
		p.stop(t)
	})
}
