package changefeedtest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// table is a store of the tests: rows by name, which one transaction changes at a time.
type table struct {
	mu   sync.Mutex
	rows map[string]int64
}

func (s *table) do(change func(rows map[string]int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil {
		s.rows = map[string]int64{}
	}
	change(s.rows)
}

func (s *table) effects() (all map[string]int64) {
	s.do(func(rows map[string]int64) { all = maps.Clone(rows) })
	return all
}

// each makes a handler of a function for each change.
func each(do func(ctx context.Context, s *table, b *feed.Batch, c feed.Change) error) func(*testing.T) (feed.Handler,
	func() map[string]int64) {
	return func(*testing.T) (feed.Handler, func() map[string]int64) {
		s := &table{}
		return feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			for _, c := range b.Changes {
				if err := do(ctx, s, b, c); err != nil {
					return err
				}
			}
			return nil
		}), s.effects
	}
}

// countOnce counts the changes of a key beside a mark, as docs/exactly-once.md says.
func countOnce(ctx context.Context, s *table, b *feed.Batch, c feed.Change) error {
	var err error
	s.do(func(rows map[string]int64) {
		key, done := string(c.PartitionKey), string(c.PartitionKey)+" "+c.ID+c.ETag
		switch {
		case b.Epoch < rows[key+" epoch"]:
			err = errors.New("the lease has had a later owner")
		case rows[done] == 0:
			rows[key+" total"]++
			rows[done], rows[key+" epoch"] = 1, b.Epoch
		}
	})
	return err
}

// withoutEpochs removes the epochs from the effects: they are not the same in each run.
func withoutEpochs(start func(*testing.T) (feed.Handler, func() map[string]int64)) func(*testing.T) (feed.Handler,
	func() map[string]int64) {
	return func(t *testing.T) (feed.Handler, func() map[string]int64) {
		h, effects := start(t)
		return h, func() map[string]int64 {
			all := effects()
			maps.DeleteFunc(all, func(name string, _ int64) bool { return strings.HasSuffix(name, " epoch") })
			return all
		}
	}
}

// lately is a step that takes ten seconds, whatever its context says.
func lately(ctx context.Context) { _ = pause.For(context.WithoutCancel(ctx), 10*time.Second) }

func TestTorturePassesHandlersThatAreIdempotent(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (feed.Handler, func() map[string]int64){
		"upserts by id": each(func(_ context.Context, s *table, _ *feed.Batch, c feed.Change) error {
			s.do(func(rows map[string]int64) { rows[c.ID] = c.LSN })
			return nil
		}),
		"a mark in the transaction of the effect": withoutEpochs(each(countOnce)),
		"a mark, and slow steps": withoutEpochs(each(
			func(ctx context.Context, s *table, b *feed.Batch, c feed.Change) error {
				if err := pause.For(ctx, time.Second); err != nil {
					return err
				}
				return countOnce(ctx, s, b, c)
			})),
		"a mark with the epoch, and steps that ignore the context": withoutEpochs(each(
			func(ctx context.Context, s *table, b *feed.Batch, c feed.Change) error {
				lately(ctx)
				return countOnce(ctx, s, b, c)
			})),
	} {
		t.Run(name, func(t *testing.T) {
			changefeedtest.Torture(t, changefeedtest.TortureOptions{}, start)
		})
	}
}

// Each of these handlers has a defect that is common, and the report says what makes it visible.
func TestTortureFindsHandlersThatAreNotIdempotent(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(ctx context.Context, s *table, b *feed.Batch, c feed.Change) error
		wants []string
	}{
		{"a counter without a mark", func(_ context.Context, s *table, _ *feed.Batch, c feed.Change) error {
			s.do(func(rows map[string]int64) { rows[string(c.PartitionKey)]++ })
			return nil
		}, []string{
			"with 1 fault and 1 of 21 changes", "its effects depend on the faults", "host-1 receives 1 change (key [",
			"The handler returns nil on host-1.", "(attempt 2, epoch 2)", " is 2, and 1 in a clean run.",
			"to 1 and Seeds to 1",
		}},
		{"the mark is in another transaction", func(ctx context.Context, s *table, _ *feed.Batch, c feed.Change) error {
			isDone := false
			s.do(func(rows map[string]int64) { isDone = rows["done "+c.ID+c.ETag] > 0 })
			if isDone {
				return nil
			}
			s.do(func(rows map[string]int64) { rows[string(c.PartitionKey)]++ })
			if err := ctx.Err(); err != nil {
				return err
			}
			s.do(func(rows map[string]int64) { rows["done "+c.ID+c.ETag]++ })
			return nil
		}, []string{"with 1 fault and 1 of 21 changes", "ends during the call", " is 2, and 1 in a clean run."}},
		{"an insert that refuses", func(_ context.Context, s *table, _ *feed.Batch, c feed.Change) (err error) {
			s.do(func(rows map[string]int64) {
				if rows[c.ID+c.ETag]++; rows[c.ID+c.ETag] > 1 {
					err = errors.New("duplicate key")
				}
			})
			return err
		}, []string{
			"with 1 fault and 1 of 21 changes", "it does not get past a batch",
			"It has failed 5 times in a row on change order-",
			`"duplicate key"`,
		}},
		{"several changes count as one", func(_ context.Context, s *table, b *feed.Batch, c feed.Change) error {
			s.do(func(rows map[string]int64) { rows["first "+b.Changes[0].ID] = 1 })
			return nil
		}, []string{"with 0 faults", "its effects depend on how the changes are divided", "is missing, and 1 in a clean run."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			report := changefeedtest.TortureReport(t, changefeedtest.TortureOptions{}, each(c.do))
			for _, want := range c.wants {
				if !strings.Contains(report, want) {
					t.Errorf("%s\nwant %q in it", report, want)
				}
			}
			t.Log(report)
		})
	}
}

// An owner that freezes between its look at the context and its write overwrites what later owners have written. Only
// an epoch in the store refuses the write.
func TestTortureFreezesInstances(t *testing.T) {
	upsert := each(func(ctx context.Context, s *table, _ *feed.Batch, c feed.Change) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.do(func(rows map[string]int64) { rows[string(c.PartitionKey)] = c.LSN })
		return nil
	})
	o := changefeedtest.TortureOptions{}
	changefeedtest.Torture(t, o, upsert)
	o.Freezes = true
	report := changefeedtest.TortureReport(t, o, upsert)
	for _, want := range []string{
		"with 1 fault and 2 of 21 changes", "during the call (lease lost); 5s later the handler has not returned",
		"in a clean run.",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("%s\nwant %q in it", report, want)
		}
	}
	changefeedtest.Torture(t, o, withoutEpochs(each(
		func(ctx context.Context, s *table, b *feed.Batch, c feed.Change) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return countOnce(ctx, s, b, c)
		})))
}

// A mark in memory ends with its process. Torture sees that if each instance has a handler of its own.
func TestTortureFindsMarksInMemory(t *testing.T) {
	type maker = func() feed.Handler
	start := func(wrap func(maker) feed.Handler) func(*testing.T) (feed.Handler, func() map[string]int64) {
		return func(*testing.T) (feed.Handler, func() map[string]int64) {
			s := &table{}
			return wrap(func() feed.Handler {
				var memory table
				return feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
					memory.do(func(seen map[string]int64) {
						for _, c := range b.Changes {
							if seen[c.ID+c.ETag]++; seen[c.ID+c.ETag] == 1 {
								s.do(func(rows map[string]int64) { rows[string(c.PartitionKey)]++ })
							}
						}
					})
					return nil
				})
			}), s.effects
		}
	}
	shared := start(func(one func() feed.Handler) feed.Handler { return one() })
	if report := changefeedtest.TortureReport(t, changefeedtest.TortureOptions{}, shared); report != "" {
		t.Errorf("a handler that all instances share: %s", report)
	}
	report := changefeedtest.TortureReport(t, changefeedtest.TortureOptions{}, start(changefeedtest.PerInstance))
	if !strings.Contains(report, "with 1 fault and 1 of 21 changes") {
		t.Errorf("%q, want a difference after 1 fault", report)
	}
}

// What a handler does wrong beside its effects is reported, and hangs nothing.
func TestTortureReportsHandlersThatDoNotEnd(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	var spins atomic.Bool
	spins.Store(true)
	defer spins.Store(false)
	changefeedtest.SetStillAfter(t, time.Second)
	for _, c := range []struct {
		name  string
		h     feed.HandlerFunc
		wants []string
	}{
		{"a goroutine that goes on", func(ctx context.Context, _ *feed.Batch) error {
			go lately(ctx)
			return nil
		}, []string{
			"in a clean run", "it leaves a goroutine behind", "After the call for change order-0", "pause.For",
			"torture_test.go",
		}},
		{"a goroutine of a goroutine that never ends", func(context.Context, *feed.Batch) error {
			go func() { go func() { select {} }() }()
			return nil
		}, []string{"in a clean run", "it leaves a goroutine behind", "After the run", "torture_test.go"}},
		{"a call that never ends", func(context.Context, *feed.Batch) error {
			select {}
		}, []string{
			"in a clean run", "it ignores the end of its context", "has not returned 1h0m0s after its context ended",
		}},
		{"a call that takes too long", func(ctx context.Context, _ *feed.Batch) error {
			<-ctx.Done()
			return ctx.Err()
		}, []string{"in a clean run", "handler deadline exceeded", "order-0 of key [\"city-0\"] without any fault"}},
		{"a call that ignores a lost lease", func(ctx context.Context, _ *feed.Batch) error {
			if _, ok := ctx.Deadline(); ok || ctx.Err() == nil && pause.For(ctx, time.Second) == nil {
				return nil
			}
			select {}
		}, []string{"it ignores the end of its context", "after its context ended"}},
		{"a loop", func(context.Context, *feed.Batch) error {
			for spins.Load() {
			}
			return nil
		}, []string{"in a clean run", "it stands still", "For 1s of real time"}},
		{"an error", func(context.Context, *feed.Batch) error {
			return errors.New("no route to the database")
		}, []string{"in a clean run", `returns the error "no route to the database"`}},
		{"a panic", func(context.Context, *feed.Batch) error {
			panic("no city")
		}, []string{"in a clean run", "the handler panics: no city"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			report := changefeedtest.TortureReport(t, changefeedtest.TortureOptions{},
				func(*testing.T) (feed.Handler, func() bool) {
					var called atomic.Bool
					return feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
						called.Store(true)
						return c.h(ctx, b)
					}), called.Load
				})
			for _, want := range c.wants {
				if !strings.Contains(report, want) {
					t.Errorf("%s\nwant %q in it", report, want)
				}
			}
		})
	}
}

// A confirmed batch does not come again, and an unconfirmed one does.
func TestTortureOfCheckpointsByHand(t *testing.T) {
	o := changefeedtest.TortureOptions{Manual: true}
	changefeedtest.Torture(t, o, func(*testing.T) (feed.Handler, func() map[string]int64) {
		s := &table{}
		return feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if err := b.Checkpoint(ctx); err != nil {
				return err
			}
			for _, c := range b.Changes {
				s.do(func(rows map[string]int64) { rows[string(c.PartitionKey)]++ })
			}
			return nil
		}), s.effects
	})
	unconfirmed := each(func(_ context.Context, s *table, _ *feed.Batch, c feed.Change) error {
		s.do(func(rows map[string]int64) { rows[string(c.PartitionKey)]++ })
		return nil
	})
	report := changefeedtest.TortureReport(t, o, unconfirmed)
	if !strings.Contains(report, "in a clean run.") {
		t.Errorf("%q, want a difference of a handler that confirms nothing", report)
	}
}

// An abandoned batch comes again to another instance, and nothing is confirmed before that.
func TestTortureOfAbandonedBatches(t *testing.T) {
	o := changefeedtest.TortureOptions{Manual: true, Seeds: 5}
	abandoned, refused := 0, 0
	changefeedtest.Torture(t, o, func(*testing.T) (feed.Handler, func() map[string]int64) {
		s, seen := &table{}, map[int64]bool{}
		return feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			for _, c := range b.Changes {
				s.do(func(rows map[string]int64) { rows[string(c.PartitionKey)] = c.LSN })
			}
			first := false
			s.do(func(map[string]int64) { first, seen[b.Changes[0].LSN] = !seen[b.Changes[0].LSN], true })
			if !first || b.Changes[0].LSN%2 == 0 {
				return b.Checkpoint(ctx)
			}
			if err := b.Abandon(); err != nil {
				return err
			}
			err := b.Checkpoint(ctx)
			s.do(func(map[string]int64) {
				if abandoned++; errors.Is(err, feed.ErrLeaseLost) {
					refused++
				}
			})
			return nil
		}), s.effects
	})
	if abandoned == 0 || refused == 0 {
		t.Errorf("%d batches were abandoned, and %d of their checkpoints refused", abandoned, refused)
	}
	always := each(func(_ context.Context, _ *table, b *feed.Batch, _ feed.Change) error { return b.Abandon() })
	report := changefeedtest.TortureReport(t, o, always)
	if want := "It has abandoned batches of lease"; !strings.Contains(report, want) {
		t.Errorf("%q, want %q of a handler that abandons all", report, want)
	}
}

func TestTortureOptionsAreChecked(t *testing.T) {
	for want, o := range map[string]changefeedtest.TortureOptions{
		"a number in TortureOptions is -1: want a positive number": {Leases: -1},
		"Changes[1].LSN is 3 after 5: want the order of the feed":  {Changes: []feed.Change{{LSN: 5}, {LSN: 3}}},
	} {
		if got := changefeedtest.TortureReport(t, o, each(countOnce)); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The changes of the user are delivered as they are, each once in a clean run.
func TestTortureDeliversTheChangesOfTheUser(t *testing.T) {
	mine := []feed.Change{
		{ID: "a", PartitionKey: feed.Key("x"), Body: []byte(`1`)},
		{ID: "b", PartitionKey: feed.Key("y"), Body: []byte(`2`), Op: feed.OpDelete},
	}
	calls := 0
	report := changefeedtest.TortureReport(t, changefeedtest.TortureOptions{Changes: mine, Seeds: 1},
		func(*testing.T) (feed.Handler, func() string) {
			var got []string
			calls++
			return feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
				for _, c := range b.Changes {
					got = append(got, fmt.Sprint(c.ID, c.LSN, string(c.Body), c.Op))
				}
				return errors.Join(map[bool]error{true: errors.New("seen")}[len(got) == 2])
			}), func() string { return fmt.Sprint(got) }
		})
	if !strings.Contains(report, `change b of key ["y"] without any fault: the handler returns the error "seen"`) || calls != 1 {
		t.Errorf("%q in %d runs, want that b fails in the first", report, calls)
	}
}

// keeper is a handler that collects changes and stores them when it must: as a processor calls Open and Close.
type keeper struct {
	s       *table
	atEnd   bool // stores in Close, which is too late
	mu      sync.Mutex
	open    map[string]bool // leases, with their epochs
	waiting []feed.Change
}

func (k *keeper) Open(_ context.Context, l feed.Lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open[l.Token+l.Owner+l.Epoch] = true
	k.s.do(func(rows map[string]int64) { rows["opened"] = 1 })
	return nil
}

func (k *keeper) Close(_ context.Context, l feed.Lease, why feed.Reason) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.open[l.Token+l.Owner+l.Epoch] {
		k.s.do(func(rows map[string]int64) { rows["closed though not open"]++ })
	}
	delete(k.open, l.Token+l.Owner+l.Epoch)
	k.store()
	if why == feed.ReasonStopped {
		k.s.do(func(rows map[string]int64) { rows["closed at the end"] = 1 })
	}
	return nil
}

func (k *keeper) Handle(_ context.Context, b *feed.Batch) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.open[b.LeaseToken+b.Instance+fmt.Sprint(b.Epoch)] {
		k.s.do(func(rows map[string]int64) { rows["not open"]++ })
	}
	if k.waiting = append(k.waiting, b.Changes...); !k.atEnd {
		k.store()
	}
	return nil
}

func (k *keeper) store() {
	for _, c := range k.waiting {
		k.s.do(func(rows map[string]int64) { rows[c.ID] = max(rows[c.ID], c.LSN) })
	}
	k.waiting = nil
}

// A lease is opened before its first batch, and closed if its owner lives. What waits for Close is lost in a crash.
func TestTortureOpensAndClosesLeases(t *testing.T) {
	start := func(atEnd bool) func(*testing.T) (feed.Handler, func() map[string]int64) {
		return func(*testing.T) (feed.Handler, func() map[string]int64) {
			s := &table{}
			return changefeedtest.PerInstance(func() feed.Handler {
				return &keeper{s: s, atEnd: atEnd, open: map[string]bool{}}
			}), s.effects
		}
	}
	changefeedtest.Torture(t, changefeedtest.TortureOptions{}, start(false))
	report := changefeedtest.TortureReport(t, changefeedtest.TortureOptions{}, start(true))
	if !strings.Contains(report, "is missing, and ") || !strings.Contains(report, "Then the process of host-") &&
		!strings.Contains(report, "The process ends") {
		t.Errorf("%q, want a change that a crash has lost", report)
	}
}

// If the user's functions fail the test, there is nothing to add.
func TestTortureEndsWithTheTestOfTheUser(t *testing.T) {
	if os.Getenv(mutantVariable) == "start fails" {
		changefeedtest.Torture(t, changefeedtest.TortureOptions{}, func(t *testing.T) (feed.Handler, func() int) {
			t.Fatal("no database")
			return nil, nil
		})
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), mutantVariable+"=start fails")
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Count(string(out), "no database") != 1 || strings.Contains(string(out), "torture:") {
		t.Errorf("%v\n%s\nwant the failure of the user alone, once", err, out)
	}
}

// A comparison that would prove nothing is refused: of a store that all runs share, and of effects that show nothing.
func TestTortureRefusesWhatProvesNothing(t *testing.T) {
	shared, total := map[string]int{}, 0
	count := func(add func(n int)) feed.Handler {
		return feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			add(len(b.Changes))
			return nil
		})
	}
	for name, c := range map[string]struct {
		start func(*testing.T) (feed.Handler, func() any)
		want  string
	}{
		"a live map": {func(*testing.T) (feed.Handler, func() any) {
			return count(func(n int) { shared["x"] += n }), func() any { return shared }
		}, "have changed in the next one"},
		"a total of all runs": {func(*testing.T) (feed.Handler, func() any) {
			return count(func(n int) { total += n }), func() any { return total }
		}, "two clean runs have different effects: make the handler and its stores in start"},
		"no effects": {func(*testing.T) (feed.Handler, func() any) {
			return count(func(int) {}), func() any { return map[string]int{} }
		}, "the same without any change and after 21 changes"},
	} {
		report := changefeedtest.TortureReport(t, changefeedtest.TortureOptions{}, c.start)
		if !strings.HasPrefix(report, "Torture proves nothing: ") || !strings.Contains(report, c.want) {
			t.Errorf("%s: %q, want %q", name, report, c.want)
		}
	}
}
