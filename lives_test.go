package changefeed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/lives"
)

// How a processor is killed at every point
//
// A life writes some orders and works them off, until it ends before or after a read, a call of the handler, an effect
// or a write of a lease. At the end each effect must be there once.

// points are where lives end.
var points = []string{
	"before a read", "after a read", "before the handler", "before a commit", "after a commit", "before a checkpoint",
	"after a checkpoint",
}

const (
	lifeOrders = 12
	lifeCities = 4
	mostTimes  = 8 // after that a round ends as the first one did
)

// mortalSource is a source that may end the process.
type mortalSource struct {
	*docstore.Container
	*lives.Death
}

func (s mortalSource) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page,
	error,
) {
	s.At("before a read")
	page, err := s.Container.Read(ctx, r, from, o)
	s.At("after a read")
	return page, err
}

// mortalLeases are leases that may end the process.
type mortalLeases struct {
	*docstore.Leases
	*lives.Death
}

func (s mortalLeases) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	s.At("before a checkpoint")
	l, err := s.Leases.Update(ctx, l)
	s.At("after a checkpoint")
	return l, err
}

// mortalTotals is a place for effects that may end the process.
type mortalTotals struct {
	*docstore.Container
	*lives.Death
}

func (s mortalTotals) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if writes[0].Op != feed.WriteRead {
		s.At("before a commit")
		defer s.At("after a commit")
	}
	return s.Container.Commit(ctx, key, writes)
}

func TestLife(t *testing.T) { lives.Live(t, live) }

// live writes orders, and then works until nothing is left.
func live(t *testing.T, l lives.Life) {
	w := &world{t: t, db: l.DB}
	w.orders = l.Container(t, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: 2})
	w.container = l.Container(t, docstore.LeaseSpec("leases"))
	w.leases = w.unit("unit")
	totals := l.Container(t, docstore.ContainerSpec{ID: "totals", Paths: []string{"/city"}})
	for i := range lifeOrders {
		w.put(fmt.Sprint("city-", i%lifeCities), fmt.Sprintf("order-%d-%d", l.Number, i), i)
	}
	if l.Number%10 == 0 && l.Number <= 50 {
		w.split(0)
	}
	counter := &orderCounter{totals: mortalTotals{totals, l.Death}}
	handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
		l.At("before the handler")
		return counter.Handle(ctx, b)
	})
	p, err := changefeed.New(mortalSource{w.orders, l.Death}, mortalLeases{w.leases, l.Death}, handler,
		changefeed.Options{
			Instance: "life", Start: feed.FromBeginning(), MaxItems: 3, Concurrency: 1 + l.Number%2*3,
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for time.Sleep(time.Second); w.pending() > 0; {
		time.Sleep(time.Second)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEachEffectHappensOnceWhereverItsProcessIsKilled(t *testing.T) {
	db, killed := lives.Kill(t, points, func(round int) int { return round%mostTimes + 1 })
	totals, err := db.Container("totals")
	if err != nil {
		t.Fatal(err)
	}
	for i := range lifeCities {
		want := killed * ((lifeOrders - i + lifeCities - 1) / lifeCities)
		if got := totalOf(t, totals, fmt.Sprint("city-", i)); got != want {
			t.Errorf("city-%d: %d orders were counted, want %d", i, got, want)
		}
	}
}

// totalOf reads how many orders of a city were counted.
func totalOf(t *testing.T, totals *docstore.Container, city string) int {
	t.Helper()
	item, err := totals.Item(t.Context(), feed.Key(city), "total")
	if errors.Is(err, feed.ErrNotFound) {
		return 0
	}
	var total struct{ Orders int }
	if err = errors.Join(err, json.Unmarshal(item.Body, &total)); err != nil {
		t.Fatal(err)
	}
	return total.Orders
}

// hookedTotals is a place for effects with something to do before each.
type hookedTotals struct {
	*docstore.Container
	before func()
}

func (s hookedTotals) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if writes[0].Op != feed.WriteRead {
		s.before()
	}
	return s.Container.Commit(ctx, key, writes)
}

// An owner is cut off between its look at the mark and its effect, hears nothing of the end
// of its lease, and goes on when another one has long done its work.
func TestAnOwnerThatIsDeafHasNoEffect(t *testing.T) {
	for _, c := range []struct {
		name   string
		before bool // it is cut off before it looks at the mark
		want   error
	}{{"after its look", false, feed.ErrPrecondition}, {"before its look", true, errFenced}} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				totals := w.create(docstore.ContainerSpec{ID: "totals", Paths: []string{"/city"}})
				w.put("oslo", "first", 1)
				wait, begun, result := make(chan bool), make(chan bool), make(chan error, 1)
				var second atomic.Bool
				stall := func() {
					if second.Load() {
						begun <- true
						<-wait // whatever its context says
					}
				}
				deaf := &orderCounter{totals: hookedTotals{totals, func() {
					if !c.before {
						stall()
					}
				}}}
				a := w.run("a", feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
					deafTo := context.WithoutCancel(ctx)
					if c.before {
						stall()
					}
					err := deaf.Handle(deafTo, b)
					if second.Load() {
						result <- err
					}
					return err
				}), changefeed.Options{Start: feed.FromBeginning(), Drain: time.Second})
				time.Sleep(time.Second)
				second.Store(true)
				w.put("oslo", "second", 2)
				<-begun
				a.kill(t)
				b := w.run("b", &orderCounter{totals: totals}, changefeed.Options{})
				time.Sleep(2 * time.Minute)
				w.put("oslo", "third", 3)
				time.Sleep(time.Second)
				close(wait)
				if err := <-result; !errors.Is(err, c.want) {
					t.Errorf("the deaf owner's effect: %v, want %v", err, c.want)
				}
				b.stop(t)
				if got := totalOf(t, totals, "oslo"); got != 3 || w.pending() != 0 {
					t.Errorf("%d orders were counted, want 3; %d pending", got, w.pending())
				}
			})
		})
	}
}

// Owners come and go, partitions split and merge, and every third effect is taken for a failure.
func TestEachEffectHappensOnceAcrossSplitsAndMerges(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			totals := w.create(docstore.ContainerSpec{ID: "totals", Paths: []string{"/city"}})
			counter := &orderCounter{totals: totals}
			var calls, again atomic.Int64
			handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
				err := counter.Handle(ctx, b)
				if err == nil && calls.Add(1)%3 == 0 {
					again.Add(1)
					return errHandler
				}
				return err
			})
			const lives, cities, orders = 8, 10, 60
			for life := range lives {
				p := w.run("a", handler, changefeed.Options{
					Start: feed.FromBeginning(), MaxItems: 7,
					Concurrency: concurrency, Drain: time.Second,
				})
				for i := range orders {
					w.put(fmt.Sprint("city-", i%cities), fmt.Sprintf("order-%d-%d", life, i), i)
					if i == orders/2 && life%2 == 0 {
						w.split(0)
					} else if i == orders/2 {
						w.merge(0)
					}
				}
				time.Sleep(time.Second)
				p.kill(t)
				time.Sleep(2 * time.Minute)
			}
			p := w.run("b", handler, changefeed.Options{})
			time.Sleep(time.Hour)
			p.stop(t)
			for i := range cities {
				if got, want := totalOf(t, totals, fmt.Sprint("city-", i)), lives*orders/cities; got != want {
					t.Errorf("city-%d: %d orders were counted, want %d", i, got, want)
				}
			}
			if again.Load() < lives || w.pending() != 0 {
				t.Errorf("%d batches came again, %d pending", again.Load(), w.pending())
			}
		})
	}
}

// A transaction whose second change fails is cut: its parts come one by one, with one LSN. What
// is parked of it, and what is held after it, has its effect when it is redriven.
func TestEachEffectHappensOnceWhenLettersAreRedriven(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		totals := w.create(docstore.ContainerSpec{ID: "totals", Paths: []string{"/city"}})
		counter := &orderCounter{totals: totals}
		var mended atomic.Bool
		handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			for _, c := range b.Changes {
				if c.ID == "bad" && !mended.Load() {
					return errHandler
				}
			}
			return counter.Handle(ctx, b)
		})
		box := &letterBox{}
		p := w.run("a", handler, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
		})
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"),
			[]feed.Write{upsert("oslo", "1", 1), upsert("oslo", "bad", 2), upsert("oslo", "3", 3)}); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "4", 4)
		time.Sleep(10 * time.Minute)
		letters := box.all()
		if got := totalOf(t, totals, "oslo"); got != 1 || len(letters) != 3 {
			t.Fatalf("%d orders were counted, want 1; parked: %s", got, box.names())
		}
		mended.Store(true)
		if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"), letters[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := totalOf(t, totals, "oslo"); got != 4 || len(box.all()) != 0 {
			t.Errorf("%d orders were counted, want 4; parked: %s", got, box.names())
		}
		p.stop(t)
	})
}

// In all versions a transaction can have several changes of one item, and deletes, which have no body.
func TestEachEffectHappensOnceForAllVersions(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
		totals := w.create(docstore.ContainerSpec{ID: "totals", Paths: []string{"/city"}})
		counter := &orderCounter{totals: totals}
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if err := counter.Handle(ctx, b); err != nil || b.Attempt > 1 {
				return err
			}
			return errHandler // though its effect is there
		})
		w.put("oslo", "old", 1)
		p := w.run("a", h, changefeed.Options{Mode: feed.AllVersionsAndDeletes})
		time.Sleep(time.Second)
		remove := func(id string) feed.Write { return feed.Write{Op: feed.WriteDelete, ID: id} }
		for _, writes := range [][]feed.Write{
			{remove("old")},
			{upsert("oslo", "new", 1), upsert("oslo", "new", 2), upsert("oslo", "new", 3), remove("new")},
		} {
			if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), writes); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		p.stop(t)
		if got := totalOf(t, totals, "oslo"); got != 5 {
			t.Errorf("%d changes were counted, want 5", got)
		}
	})
}

// epochs are the numbers of the owners that have handled each partition key, in their order.
type epochs struct {
	mu    sync.Mutex
	owner map[feed.PartitionKey][]string
	last  map[feed.PartitionKey]int64
}

// Handle fails, for good, where a number is not that of its owner, or not above those before.
func (e *epochs) Handle(_ context.Context, b *feed.Batch) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range b.Changes {
		owners, owner := e.owner[c.PartitionKey], b.Instance+" "+b.LeaseToken
		changed := len(owners) == 0 || owners[len(owners)-1] != owner
		if changed && b.Epoch <= e.last[c.PartitionKey] || !changed && b.Epoch != e.last[c.PartitionKey] {
			return fmt.Errorf("%s: epoch %d of %s, after %d of %v", c.PartitionKey, b.Epoch, owner,
				e.last[c.PartitionKey], owners)
		}
		if changed {
			e.owner[c.PartitionKey] = append(owners, owner)
		}
		e.last[c.PartitionKey] = b.Epoch
	}
	return nil
}

// Each owner of a key has a higher number than the one before: of the same lease, of a child, and
// after a host of another processor, which counts nothing, and of a lease that was deleted.
func TestEachOwnerOfAKeyHasAHigherEpoch(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		e := &epochs{owner: map[feed.PartitionKey][]string{}, last: map[feed.PartitionKey]int64{}}
		const owners = 6
		for n := range owners {
			p := w.run(fmt.Sprint("host-", n), e, changefeed.Options{Start: feed.FromBeginning(), Drain: time.Second})
			w.fill(20)
			// the last one waits until whoever may have the deleted lease must have stopped
			time.Sleep(time.Duration(1+n) * time.Minute)
			if n == 2 {
				w.split(0)
				w.fill(20)
				time.Sleep(time.Minute)
			}
			if n%2 == 0 {
				p.kill(t)
				time.Sleep(2 * time.Minute)
			} else {
				p.stop(t)
			}
			if n == 4 { // somebody deletes a lease, whose range is then read from the beginning
				if err := w.leases.Delete(t.Context(), w.records(feed.KindLease)[0]); err != nil {
					t.Fatal(err)
				}
			}
			if n == 3 {
				for _, l := range w.records(feed.KindLease) { // .NET takes it, and releases it
					for _, l.Owner = range []string{"net-1", ""} {
						l.Epoch = ""
						got, err := w.leases.Update(t.Context(), l)
						if err != nil {
							t.Fatal(err)
						}
						l = got
					}
				}
			}
		}
		if w.pending() != 0 {
			t.Errorf("%d pending", w.pending())
		}
		for key, got := range e.owner {
			if len(got) != owners+1 { // the split made another one
				t.Errorf("%s: owners %q", key, got)
			}
		}
	})
}

// A unit that was away for longer than the retention says what to do, because trying again cannot help.
func TestAPositionThatIsNotRetainedAnyMoreSaysWhatToDo(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
		o := changefeed.Options{Mode: feed.AllVersionsAndDeletes}
		p := w.run("a", &tally{}, o)
		time.Sleep(time.Minute)
		p.stop(t)
		for range 10 {
			w.fill(10)
			time.Sleep(40 * time.Minute)
		}
		y := &tally{}
		p = w.run("a", y, o)
		time.Sleep(time.Minute)
		p.stop(t)
		if err := p.errs.find(feed.ErrTooOld); err == nil || !strings.Contains(err.Error(), "delete the leases") {
			t.Errorf("reported %v, want %v and what to do", err, feed.ErrTooOld)
		}
		if items, _ := y.items(); items != 0 {
			t.Errorf("%d changes were handed over, though those before them are gone", items)
		}
	})
}
