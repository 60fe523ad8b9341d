package changefeed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// snapshot takes a snapshot, and reads it again from its JSON.
func (w *world) snapshot(leases *docstore.Leases) *admin.Snapshot {
	w.t.Helper()
	s, err := admin.Open(w.orders, leases, admin.Options{}).Snapshot(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := s.WriteTo(&text); err != nil {
		w.t.Fatal(err)
	}
	read, err := admin.ReadSnapshot(&text)
	if err != nil {
		w.t.Fatal(err)
	}
	return read
}

// After a restore, what was handled since the snapshot comes again, and nothing else; also when a partition was split
// since.
func TestARestoreReplaysWhatCameAfterTheSnapshot(t *testing.T) {
	for _, split := range []bool{false, true} {
		inWorld(t, 2, func(t *testing.T, w *world) {
			y := &tally{}
			p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
			w.fill(20)
			time.Sleep(time.Minute)
			s := w.snapshot(w.leases)
			if len(s.Leases) != 2 || s.Container == "" || s.Mode != "latest version" {
				t.Errorf("the snapshot is %+v", s)
			}
			if split {
				if _, err := w.orders.Split(t.Context(), w.partitions()[0].ID); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 10 {
				w.put("late", string(rune('a'+i)), i)
			}
			time.Sleep(time.Minute)
			steps := operate(t, func(ctx context.Context) ([]admin.Step, error) {
				return w.admin(admin.Options{}).Restore(ctx, s)
			})
			time.Sleep(time.Minute)
			want := 2
			if split {
				want = 3
			}
			if items, again := y.items(); len(steps) != want || items != 30 || again != 10 || w.pending() != 0 {
				t.Errorf("split %v: %d leases, %d items, %d again, %d pending; want %d, 30, 10 and 0", split,
					len(steps),
					items, again, w.pending(), want)
			}
			p.stop(t)
		})
	}
}

// A lease whose range has a token and a start in the snapshot, because leases were joined since, continues at the
// earlier of both. The minutes are of virtual time, in which the unit handles what was written.
func TestARestoreComparesAStartWithAToken(t *testing.T) {
	const middle = "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"
	for _, c := range []struct {
		start      string
		tokenFirst bool
		again      int
	}{
		{"early", false, 20},
		{"early", true, 10}, // the keys with the start have no change
		{"beginning", false, 30},
		{"beginning", true, 30},
		{"late", false, 10},
		{"late", true, 10},
	} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			key := w.keyIn(feed.Range{Max: middle})
			y := &tally{}
			p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
			w.fill(10)
			time.Sleep(time.Minute)
			starts := map[string]string{"beginning": "beginning", "early": time.Now().UTC().Format(time.RFC3339)}
			for i := range 10 {
				w.put(key, "early"+string(rune('a'+i)), i)
			}
			time.Sleep(time.Minute)
			s := w.snapshot(w.leases)
			for i := range 10 {
				w.put(key, "late"+string(rune('a'+i)), i)
			}
			time.Sleep(time.Minute)
			starts["late"] = w.snapshot(w.leases).Taken.UTC().Format(time.RFC3339)
			s.Taken = time.Now()
			s.Leases = []admin.Place{
				{Range: "-" + middle, Token: s.Leases[0].Token}, {Range: middle + "-FF", Start: starts[c.start]},
			}
			if !c.tokenFirst {
				s.Leases[0].Token, s.Leases[1].Token = "", s.Leases[0].Token
				s.Leases[0].Start, s.Leases[1].Start = s.Leases[1].Start, ""
			}
			operate(t, func(ctx context.Context) ([]admin.Step, error) {
				return w.admin(admin.Options{}).Restore(ctx, s)
			})
			time.Sleep(time.Minute)
			if _, again := y.items(); again != c.again || w.pending() != 0 {
				t.Errorf("%+v: %d came again, %d are pending", c, again, w.pending())
			}
			p.stop(t)
		})
	}
}

// keyIn returns the text of a partition key in a range.
func (w *world) keyIn(r feed.Range) (key string) {
	w.t.Helper()
	for n := 0; ; n++ {
		key = fmt.Sprint("key", n)
		if place, err := w.orders.Locate(w.t.Context(), feed.Key(key)); err != nil {
			w.t.Fatal(err)
		} else if r.Holds(place) {
			return key
		}
	}
}

// A unit of .NET or Java continues as one of ours under another name, from its positions, and nothing is lost or comes
// again. Its snapshot makes a unit that those processors can read too, because ours has their form.
func TestAUnitOfAnotherProcessorContinuesAsOneOfOurs(t *testing.T) {
	for name, make := range map[string]func(*world){
		"dotnet": dotnetUnit(`"\"2\""`, `"\"2\""`), "java": javaUnit(javaState),
	} {
		inWorld(t, 2, func(t *testing.T, w *world) {
			w.fill(20)
			make(w)
			s := w.snapshot(w.leases)
			ours := w.unit("ours")
			unit := admin.Open(w.orders, ours, admin.Options{})
			operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Restore(ctx, s) })
			lags, err := changefeed.Estimate(t.Context(), w.orders, ours)
			if err != nil {
				t.Fatal(err)
			}
			owed := int64(0)
			for _, l := range lags {
				owed += l.Pending
			}
			y := &tally{}
			p := w.runOn(ours, "a", y, changefeed.Options{})
			time.Sleep(time.Minute)
			items, again := y.items()
			for _, c := range y.changes {
				if c.LSN <= 2 {
					t.Errorf("%s: change %d was handled before", name, c.LSN)
				}
			}
			if items == 0 || int64(items) != owed || again != 0 {
				t.Errorf("%s: %d items, %d again, want the %d that are owed", name, items, again, owed)
			}
			p.stop(t)
			if back := w.snapshot(ours); len(back.Leases) != 2 {
				t.Errorf("%s: the snapshot of ours is %+v", name, back)
			}
		})
	}
}

// A lease of Java's older leases names a partition and has no range of keys, so a snapshot of them is not possible. The
// error says so, and what to do.
func TestASnapshotOfJavasOlderLeasesIsRefused(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(20)
		olderJavaUnit(w)
		_, err := w.admin(admin.Options{}).Snapshot(t.Context())
		if !errors.Is(err, feed.ErrForeignLease) || !strings.HasPrefix(err.Error(), "no snapshot is possible") ||
			!strings.Contains(err.Error(), `names partition "0" and no range of keys`) ||
			!strings.Contains(err.Error(), "from the time of the oldest change") {
			t.Errorf("the snapshot: %v, want what is wrong and what to do", err)
		}
	})
}

// What does not fit is refused before anything is written.
func TestASnapshotThatDoesNotFitIsRefused(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(5)
		time.Sleep(time.Minute)
		p.stop(t)
		before := w.records(feed.KindLease)
		for name, edit := range map[string]func(s *admin.Snapshot){
			"of container": func(s *admin.Snapshot) { s.Container = "AAAA_BBBB" },
			"of mode":      func(s *admin.Snapshot) { s.Mode = feed.AllVersionsAndDeletes.String() },
			"end at":       func(s *admin.Snapshot) { s.Leases = s.Leases[:1] },
			"begins at":    func(s *admin.Snapshot) { s.Leases[0], s.Leases[1] = s.Leases[1], s.Leases[0] },
			"read position": func(s *admin.Snapshot) {
				s.Leases[1].Token, s.Leases[1].Start = "nonsense", ""
			},
			"want a token, or a start before": func(s *admin.Snapshot) {
				s.Leases[0] = admin.Place{Range: s.Leases[0].Range}
			},
			`token "" and start "now"`: func(s *admin.Snapshot) {
				s.Leases[0] = admin.Place{Range: s.Leases[0].Range, Start: "now"}
			},
			"range of lease 1": func(s *admin.Snapshot) { s.Leases[0].Range = "x" },
			"start of lease":   func(s *admin.Snapshot) { s.Leases[0].Token, s.Leases[0].Start = "", "soon" },
		} {
			s := w.snapshot(w.leases)
			edit(s)
			_, err := w.admin(admin.Options{}).Restore(t.Context(), s)
			if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for i, lease := range w.records(feed.KindLease) {
			if lease.ETag != before[i].ETag {
				t.Errorf("lease %s was written", lease.Token)
			}
		}
		for _, text := range []string{
			"", "{}", `{"changefeed_snapshot":2}`, `{"changefeed_snapshot":1,"other":1}`,
			"[]",
		} {
			if _, err := admin.ReadSnapshot(strings.NewReader(text)); !errors.Is(err, feed.ErrBadRequest) {
				t.Errorf("%q: %v", text, err)
			}
		}
		dry := w.admin(admin.Options{DryRun: true})
		if steps, err := dry.Restore(t.Context(), w.snapshot(w.leases)); err != nil || len(steps) != 2 ||
			steps[0].Done {
			t.Errorf("a dry restore: %+v, %v", steps, err)
		}
	})
}

// A restore that failed in the middle of a new unit goes on, and nothing is passed over.
func TestARestoreThatFailedInTheMiddleGoesOn(t *testing.T) {
	for fails := range 5 {
		inWorld(t, 4, func(t *testing.T, w *world) {
			p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
			w.fill(20)
			time.Sleep(time.Minute)
			p.stop(t)
			s := w.snapshot(w.leases)
			for i := range 40 {
				w.put(fmt.Sprint("late-", i), "item", i)
			}
			ours := w.unit("ours")
			store := &hookedStore{Leases: ours}
			made := 0
			store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				if made++; made > fails {
					return l, errors.New("no network")
				}
				return ours.Create(ctx, l)
			}
			if _, err := admin.Open(w.orders, store, admin.Options{}).Restore(t.Context(), s); err == nil {
				t.Error("the first restore has not failed: the test shows nothing")
			}
			unit := admin.Open(w.orders, ours, admin.Options{})
			operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Restore(ctx, s) })
			y := &tally{}
			p = w.runOn(ours, "b", y, changefeed.Options{Start: feed.FromBeginning()})
			time.Sleep(time.Minute)
			if items, again := y.items(); items != 40 || again != 0 {
				t.Errorf("after %d writes: %d items, %d again, want the 40 after the snapshot", fails, items, again)
			}
			p.stop(t)
		})
	}
}

// Of two restores that make a unit at once, the second says what is going on, and has changed nothing.
func TestTwoRestoresDoNotMakeAUnitAtOnce(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(5)
		time.Sleep(time.Minute)
		p.stop(t)
		s, ours := w.snapshot(w.leases), w.unit("ours")
		store := &hookedStore{Leases: ours}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			store.create = ours.Create
			if _, err := admin.Open(w.orders, ours, admin.Options{}).Restore(ctx, s); err != nil {
				t.Error(err)
			}
			return ours.Create(ctx, l)
		}
		steps, err := admin.Open(w.orders, store, admin.Options{}).Restore(t.Context(), s)
		if !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "another restore makes this unit") {
			t.Errorf("got %v, want a conflict that names the other restore", err)
		}
		for _, step := range steps {
			if step.Done {
				t.Errorf("step %v is done, want none", step)
			}
		}
	})
}

// A snapshot with a value of a wrong type is refused in the words of JSON, with the name of the field.
func TestAWrongTypeInASnapshotIsNamedInJSON(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                          "the text is a JSON array: want an object",
		`{"leases":{}}`:               "leases is a JSON object: want an array",
		`{"leases":[{"range":5}]}`:    "leases.range is a JSON number: want a string",
		`{"changefeed_snapshot":"1"}`: "changefeed_snapshot is a JSON string: want a number",
	} {
		_, err := admin.ReadSnapshot(strings.NewReader(text))
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// Leases that no snapshot has made are not taken for a part of a new unit.
func TestANewUnitIsNotMadeOverOtherLeases(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(5)
		time.Sleep(time.Minute)
		p.stop(t)
		s := w.snapshot(w.leases)
		ours := w.unit("ours")
		for name, lease := range map[string]feed.Record{
			"is there at": {Position: feed.At(`"999"`), Range: w.partitions()[0].Range},
			"is there, and not in the snapshot": {
				Position: feed.At(`"0"`), Range: w.partitions()[0].Range.Cut(2)[0],
			},
		} {
			lease.Kind, lease.Version, lease.Token = feed.KindLease, 1, lease.Range.String()
			made, err := ours.Create(t.Context(), lease)
			if err != nil {
				t.Fatal(err)
			}
			_, err = admin.Open(w.orders, ours, admin.Options{}).Restore(t.Context(), s)
			if !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
			if err := ours.Delete(t.Context(), made); err != nil {
				t.Fatal(err)
			}
		}
		// What does not fit is refused for a new unit, too.
		for name, edit := range map[string]func(s *admin.Snapshot){
			"of container": func(s *admin.Snapshot) { s.Container = "AAAA_BBBB" },
			`mode is "x"`:  func(s *admin.Snapshot) { s.Mode = "x" },
			"feed ends at": func(s *admin.Snapshot) { s.Leases[0].Token = `"99999999"` },
			"2999": func(s *admin.Snapshot) {
				s.Leases[0].Token, s.Leases[0].Start = "", "2999-01-01T00:00:00Z"
			},
			"start \"now\"": func(s *admin.Snapshot) { s.Leases[0].Start = "now" },
		} {
			s := w.snapshot(w.leases)
			edit(s)
			if _, err := admin.Open(w.orders, ours, admin.Options{}).Restore(t.Context(), s); err == nil ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if records, _, err := ours.List(t.Context()); err != nil || len(records) != 0 {
			t.Errorf("%d records are left (%v)", len(records), err)
		}
	})
}

// Changes of a key that was set aside are not handled, although the position has passed them.
func TestASnapshotIsBeforeKeysThatAreSetAside(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		stuck := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			if !slices.Contains(itemIDs(b), "stuck") {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}}
		w.put("oslo", "stuck", 0)
		for i := range 300 {
			w.put("oslo", fmt.Sprint("item-", i), i)
			w.put(fmt.Sprint("city-", i%7), fmt.Sprint("item-", i), i)
		}
		p := w.run("a", stuck, changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 4, BufferItems: 100, MaxItems: 50,
		})
		time.Sleep(time.Minute) // the lease is there
		w.until(5*time.Minute, "the lag has the key", func() bool { return w.lag().SetAside == 1 })
		time.Sleep(time.Minute)
		lease := w.records(feed.KindLease)[0]
		at, _ := w.orders.TokenLSN(lease.Position.Token)
		s := w.snapshot(w.leases)
		from, _ := w.orders.TokenLSN(s.Leases[0].Token)
		if w.lag().SetAside != 1 || at < 100 || from > 0 {
			t.Errorf("%d keys are set aside, the position is %d, and that of the snapshot %d, want 1, the end and 0",
				w.lag().SetAside, at, from)
		}
		p.stop(t)
	})
}

// A snapshot is before the changes of all keys that are set aside. Such a key can be before the position of its lease,
// or after it. A key may be set aside before the lease has a first token: the changes of the key begin where the lease
// began.
func TestASnapshotIsBeforeAllKeysThatAreSetAside(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		o := fromStart
		o.Concurrency, o.OnFailure.MaxAttempts = 4, 1
		w.many(20, 5)
		p := w.run("a", failsOn(onID("bad")), o)
		time.Sleep(10 * time.Second)
		before := w.records(feed.KindLease)[0].Position.Token
		for _, key := range []string{"oslo", "bergen", "rome"} {
			w.put(key, "bad", 1)
			time.Sleep(10 * time.Second)
		}
		p.stop(t)
		at := w.records(feed.KindLease)[0].Position.Token
		if n, got := w.lag().SetAside, w.snapshot(w.leases).Leases[0].Token; n != 3 || got != before || got == at {
			t.Fatalf("%d keys are set aside, and the snapshot is at %s, want 3 keys and %s, before %s", n, got, before, at)
		}
		for _, c := range []struct {
			from [3]string // of the keys
			want string
		}{
			{[3]string{`"999"`, `"999"`, `"999"`}, at},
			{[3]string{`"999"`, `"3"`, `"5"`}, `"3"`},
			{[3]string{`"5"`, `"3"`, `"999"`}, `"3"`},
			{[3]string{`"3"`, "", `"5"`}, ""},
			{[3]string{"", `"3"`, `"999"`}, ""},
		} {
			w.edit(func(l *feed.Record) {
				n := -1
				aside := setAsideFrom.ReplaceAllStringFunc(l.Properties[notes.AsideProperty], func(string) string {
					n++
					return fmt.Sprintf(`"from":%q`, c.from[n])
				})
				records.SetProperty(l, notes.AsideProperty, aside)
				l.Position.Start = feed.FromBeginning()
			})
			got := w.snapshot(w.leases).Leases[0]
			if got.Token != c.want || (got.Token == "") != (got.Start == "beginning") {
				t.Errorf("keys that are set aside from %q, and the lease is at %s: the snapshot is %+v, want %q", c.from,
					at, got, c.want)
			}
		}
	})
}

// A lease whose note about keys that are set aside is damaged has no snapshot: nobody knows where these keys are.
func TestADamagedNoteAboutKeysHasNoSnapshot(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		for note, bad := range map[string]bool{"x": true, `{"at":"elsewhere"}`: false} {
			w.edit(func(l *feed.Record) { records.SetProperty(l, notes.AsideProperty, note) })
			_, err := w.admin(admin.Options{}).Snapshot(t.Context())
			named := err != nil && strings.Contains(err.Error(), notes.AsideProperty)
			if errors.Is(err, feed.ErrBadLease) != bad || named != bad || (err != nil) != bad {
				t.Errorf("with the note %s: %v, want an error that names the property: %v", note, err, bad)
			}
		}
	})
}

// setAsideFrom matches where a key that is set aside begins.
var setAsideFrom = regexp.MustCompile(`"from":"([^"\\]|\\.)*"`)

// A store without the right to delete keeps retired leases, which count as deleted: a restore makes them live again. A
// lease that a restore has made counts as made, also with a start beside its token.
func TestARestoreMakesRetiredLeasesLiveAgain(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(20)
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		s := w.snapshot(w.leases)
		for i, l := range w.records(feed.KindLease) {
			l.Timestamp, l.Position.Start = time.Now(), feed.FromBeginning()
			if i == 0 {
				l.State = feed.StateRetired
			}
			if _, err := w.leases.Update(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		w.delete(w.records(feed.KindInfo)[0]) // as if an earlier restore was cut off
		steps, err := w.admin(admin.Options{}).Restore(t.Context(), s)
		if err != nil || len(steps) != 1 || !steps[0].Done {
			t.Errorf("%d steps, %v; want the retired lease", len(steps), err)
		}
		w.tiles()
		y := &tally{}
		p := w.run("a", y, changefeed.Options{})
		w.fill(5)
		time.Sleep(time.Minute)
		if w.pending() != 0 {
			t.Errorf("%d changes are pending", w.pending())
		}
		p.stop(t)
	})
}

// A snapshot that could not be restored is none.
func TestASnapshotTilesTheKeySpace(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		leases := w.records(feed.KindLease)
		take := func() error {
			_, err := w.admin(admin.Options{}).Snapshot(t.Context())
			return err
		}
		whole := leases[0]
		whole.Range, whole.Token = feed.FullRange(), feed.FullRange().String()
		whole, err := w.leases.Create(t.Context(), whole)
		if err != nil {
			t.Fatal(err)
		}
		if err := take(); !errors.Is(err, feed.ErrOverlap) ||
			!strings.Contains(err.Error(), "F and -FF hold the same keys") {
			t.Errorf("with a lease of all keys: %v, want an overlap", err)
		}
		for _, lease := range []feed.Record{whole, leases[0]} {
			if err := w.leases.Delete(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		}
		if err := take(); !errors.Is(err, feed.ErrHole) || !strings.Contains(err.Error(), leases[0].Range.String()) {
			t.Errorf("without lease %s: %v, want its range", leases[0].Token, err)
		}
	})
}
