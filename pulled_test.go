package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The first partition splits twice under a pull: nothing is skipped, nothing comes twice,
// and each page can be gone on from.
func TestPullGoesOnWhereItWasThroughSplits(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(60)
		y := &tally{}
		resume := map[feed.Range]feed.Position{}
		from := feed.Position{Start: feed.FromBeginning()}
		o := changefeed.PullOptions{ReadOptions: feed.ReadOptions{MaxItems: 4}}
		pages := 0
		for page, err := range changefeed.Pull(t.Context(), w.orders, feed.FullRange(), from, o) {
			if err != nil {
				t.Fatal(err)
			}
			if err := y.Handle(t.Context(), &feed.Batch{Changes: page.Changes}); err != nil {
				t.Fatal(err)
			}
			resume[page.Range] = page.Next
			if pages++; pages == 3 || pages == 8 {
				w.split(0)
			}
		}
		if items, again := y.items(); items != 60 || again != 0 {
			t.Errorf("%d items, %d again", items, again)
		}
		y.ordered(t)
		w.put("oslo", "new", 1)
		again := 0
		for _, p := range w.partitions() {
			at, known := resume[p.Range]
			if !known {
				t.Errorf("no page said how to go on in %s", p.Range)
				continue
			}
			for page, err := range changefeed.Pull(t.Context(), w.orders, p.Range, at, o) {
				if err != nil {
					t.Fatal(err)
				}
				again += len(page.Changes)
			}
		}
		if again != 1 {
			t.Errorf("%d changes when the pull was gone on with, want the one that is new", again)
		}
	})
}

// A pull from now reads nothing at first, and from then on it is from there.
func TestPullMovesOnAfterAnEmptyPage(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := 0
		go func() {
			for range 5 {
				time.Sleep(7 * time.Second) // between two reads
				w.put("oslo", "1", 1)
			}
		}()
		keyed := struct{ feed.Source }{w.orders} // it cannot wait
		for page, err := range changefeed.Pull(ctx, keyed, feed.FullRange(), feed.Position{},
			changefeed.PullOptions{Follow: true}) {
			if err != nil {
				t.Fatal(err)
			}
			got += len(page.Changes)
		}
		if got != 5 {
			t.Errorf("%d changes, want 5", got)
		}
	})
}

// A source that cannot count tells distances to the head: of a partition, and of leases
// that share one, where small ones are counted.
func TestTheDistanceToTheHeadCountsBothEnds(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for _, o := range []changefeed.Options{{}, {MinLeases: 2}} {
			w.leases = w.unit("unit-" + string(rune('a'+o.MinLeases)))
			p := w.run("a", feed.HandlerFunc(failing), o)
			time.Sleep(time.Second)
			p.stop(t)
		}
		began := time.Now()
		w.put("oslo", "1", 1)
		time.Sleep(time.Minute)
		const more = 299
		w.fill(more)
		for _, unit := range []struct {
			name  string
			exact bool
		}{{"unit-a", false}, {"unit-c", true}} {
			lags, err := changefeed.Estimate(t.Context(), struct{ feed.Source }{w.orders}, w.unit(unit.name))
			if err != nil {
				t.Fatal(err)
			}
			var sum changefeed.Lag
			for _, l := range lags {
				sum.Pending += l.Pending
				sum.Exact = l.Exact
			}
			if sum.Pending != 1+more || sum.Exact != unit.exact {
				t.Errorf("%s: %d pending, exact %v, want %d", unit.name, sum.Pending, sum.Exact, 1+more)
			}
		}
		w.split(0)
		lags, err := changefeed.Estimate(t.Context(), struct{ feed.Source }{w.orders}, w.unit("unit-a"))
		if err != nil || len(lags) != 1 || lags[0].Oldest.Sub(began).Abs() > time.Second {
			t.Errorf("lags %+v, %v, want one whose oldest change is of %v", lags, err, began)
		}
	})
}

// keyed is a source that refuses a key in a range that does not hold it, as the service does.
type keyed struct{ *docstore.Container }

func (s keyed) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	parts, err := s.Partitions(ctx)
	if err != nil {
		return feed.Page{}, err
	}
	if !slices.ContainsFunc(parts, func(p feed.Partition) bool { return p.Range.Contains(r) }) {
		return feed.Page{}, feed.ErrGone
	}
	return s.Container.Read(ctx, r, from, o)
}

// A pull of one key reads the partition that has it, and no other.
func TestPullOfAKeyReadsItsPartition(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		w.fill(60)
		from := feed.Position{Start: feed.FromBeginning()}
		o := changefeed.PullOptions{ReadOptions: feed.ReadOptions{Key: feed.Key("oslo")}}
		w.put("oslo", "only", 1)
		got := 0
		for page, err := range changefeed.Pull(t.Context(), keyed{w.orders}, feed.FullRange(), from, o) {
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Changes {
				if got++; c.PartitionKey != o.Key {
					t.Errorf("a change of %s", c.PartitionKey)
				}
			}
		}
		if got == 0 {
			t.Error("the pull of a key has none of its changes")
		}
		for _, err := range changefeed.Pull(t.Context(), keyed{w.orders}, feed.Range{Min: "30", Max: "FF"}, from, o) {
			if !errors.Is(err, feed.ErrBadRequest) {
				t.Errorf("a key outside the range: %v, want %q", err, feed.ErrBadRequest)
			}
		}
	})
}

// A pull that had nothing to do for long asks as often as before when something comes.
func TestAPullThatWasIdleIsQuickAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		time.AfterFunc(time.Minute, func() { w.put("oslo", "1", 1) })
		var written time.Time
		pages := 0
		source := struct{ feed.Source }{w.orders} // it cannot wait
		for _, err := range changefeed.Pull(ctx, source, feed.FullRange(), feed.Position{},
			changefeed.PullOptions{Follow: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if pages++; pages == 2 {
				break
			}
			time.AfterFunc(100*time.Millisecond, func() {
				written = time.Now()
				w.put("oslo", "2", 1)
			})
		}
		if took := time.Since(written); pages != 2 || took > 200*time.Millisecond {
			t.Errorf("%d pages; what came soon after the first was read after %v", pages, took)
		}
	})
}

// restless is a source that says at once that there may be more, as one does whose writes are for others.
type restless struct{ *docstore.Container }

func (restless) Wait(context.Context, feed.Range, feed.Position) error { return nil }

// A pull that is woken for others all the time reads seldom, but soon after what it has asked for.
func TestAPullThatIsWokenForOthersIsStillQuick(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		var written time.Time
		time.AfterFunc(63*time.Second, func() {
			written = time.Now()
			w.put("oslo", "1", 1)
		})
		for _, err := range changefeed.Pull(ctx, restless{w.orders}, feed.FullRange(), feed.Position{},
			changefeed.PullOptions{Follow: true}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if took := time.Since(written); written.IsZero() || took > time.Second {
			t.Errorf("read after %v, want within a second", took)
		}
	})
}
