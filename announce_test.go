package changefeed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// hearsay keeps what the hooks of keys, letters and outages were told, in its order.
type hearsay struct {
	mu    sync.Mutex
	lines []string
}

func (l *hearsay) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// about are the lines that begin with a word.
func (l *hearsay) about(word string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			lines = append(lines, rest)
		}
	}
	return lines
}

func (l *hearsay) hooks() changefeed.Hooks {
	return changefeed.Hooks{
		Key: func(_ context.Context, k feed.KeyEvent) { l.add("key %s %s", k.Key, k.Became) },
		Redriven: func(_ context.Context, r feed.Redriven) {
			l.add("redriven %s recall %v: %v", r.Letter.Change.ID, r.Recall, r.Err)
		},
		Outage: func(_ context.Context, o feed.Outage) { l.add("outage over %v", !o.Ended.IsZero()) },
	}
}

// A key is held when its change is parked, its letter fails again and then is handled, and the key is released.
func TestHooksHearOfKeysAndLetters(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mended atomic.Bool
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if slices.Contains(itemIDs(b), "bad") && !mended.Load() {
				return errHandler
			}
			return nil
		}}
		lsn := w.put("oslo", "bad", 1)
		w.many(20, 5)
		box, said := &letterBox{}, &hearsay{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		}, Hooks: said.hooks()}
		p := w.run("a", h, o)
		w.isParked(box, "bad")
		w.put("oslo", "next", 2)
		w.until(5*time.Minute, "next parked", func() bool { return len(box.all()) == 2 })
		if l := leaseOf(t, p.processor); l.Held != 1 || w.lag().Held != 1 || w.lag().SetAside != l.SetAside {
			t.Errorf("the status has %d keys held and %d set aside, the lag %+v", l.Held, l.SetAside, w.lag())
		}
		redrive := func() {
			if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"),
				letterNamed(lsn, "bad")); err != nil {
				t.Error(err)
			}
		}
		redrive()
		mended.Store(true)
		redrive()
		p.stop(t)
		oslo := string(feed.Key("oslo"))
		if got, want := said.about("key"), []string{oslo + " held", oslo + " released"}; !slices.Equal(got, want) {
			t.Errorf("keys %q, want %q", got, want)
		}
		want := []string{
			"bad recall false: " + errHandler.Error(), "bad recall false: <nil>",
			"next recall false: <nil>",
		}
		if got := said.about("redriven"); !slices.Equal(got, want) {
			t.Errorf("letters %q, want %q", got, want)
		}
	})
}

// The buffer is full of changes behind one that hangs, so its key is set aside until the handler goes on.
func TestHooksHearOfKeysThatAreSetAside(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		release := make(chan struct{})
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			if !slices.Contains(itemIDs(b), "stuck") {
				return nil
			}
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		w.put("oslo", "stuck", 0)
		for i := range 300 {
			w.put("oslo", fmt.Sprint("item-", i), i)
			w.put(fmt.Sprint("city-", i%7), fmt.Sprint("item-", i), i)
		}
		said := &hearsay{}
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 4, BufferItems: 100,
			MaxItems: 50, Hooks: said.hooks(),
		})
		w.until(5*time.Minute, "set aside", func() bool { return len(said.about("key")) == 1 })
		w.until(time.Minute, "the lag has the key", func() bool { return w.lag().SetAside == 1 })
		if l := leaseOf(t, p.processor); l.SetAside != w.lag().SetAside || l.Held != w.lag().Held {
			t.Errorf("the status has %d keys set aside and %d held, the lag %+v", l.SetAside, l.Held, w.lag())
		}
		time.Sleep(time.Minute)
		if l := leaseOf(t, p.processor); l.Read.Token != w.orders.TokenAfter(w.orders.Head()) || l.SetAside != 1 ||
			l.Exact {
			t.Errorf("read to %s with %d keys set aside, exact %t", l.Read.Token, l.SetAside, l.Exact)
		}
		close(release)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		oslo := string(feed.Key("oslo"))
		if got, want := said.about("key"), []string{oslo + " set aside", oslo + " caught up"}; !slices.Equal(got,
			want) {
			t.Errorf("keys %q, want %q", got, want)
		}
		if items, again := h.items(); items != 601 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
	})
}

// An outage is one line in the log when it begins and one when it ends, and both are told when they happen.
func TestAnOutageIsToldOnceAtItsBeginningAndItsEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h, mended := failsUntilMended()
		w.many(20, 5)
		var text lockedText
		said := &hearsay{}
		hooks := changefeed.JoinHooks(changefeed.LogHooks(slog.New(slog.NewTextHandler(&text, nil))), said.hooks())
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: &letterBox{},
		}, Instance: "a", Hooks: hooks}
		processor, err := changefeed.New(w.orders, w.leases, h, o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- processor.Run(ctx) }()
		w.until(10*time.Minute, "outage", func() bool {
			return slices.Equal(said.about("outage"), []string{"over false"})
		})
		mended.Store(true)
		w.until(time.Minute, "its end", func() bool {
			return slices.Equal(said.about("outage"), []string{"over false", "over true"})
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := strings.Count(text.String(), "utage"); n != 2 {
			t.Errorf("%d lines of an outage, want 2:\n%s", n, text.String())
		}
	})
}

// lockedText is a text that several goroutines write.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// What cannot be set aside is said at the start, and only where it matters.
func TestASourceThatCannotReadKeysIsReportedAtTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		source func(w *world) feed.Source
		o      changefeed.Options
		want   bool
	}{
		"in parallel": {plainSource, changefeed.Options{Concurrency: 2}, true},
		"with a policy": {
			plainSource,
			changefeed.Options{OnFailure: changefeed.FailurePolicy{MaxAttempts: 2}},
			true,
		},
		"in order": {plainSource, changefeed.Options{}, false},
		"by hand":  {plainSource, changefeed.Options{Concurrency: 2, Manual: true}, true},
		"where keys can be": {func(w *world) feed.Source {
			return w.orders
		}, changefeed.Options{Concurrency: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				c.o.Start = feed.FromBeginning()
				p := w.runWith(c.source(w), w.leases, "a", &tally{}, c.o)
				time.Sleep(time.Minute)
				p.stop(t)
				n := 0
				for _, err := range p.errs.all() {
					if errors.Is(err, feed.ErrNoKeyReads) {
						n++
					}
				}
				if (n == 1) != c.want || n > 1 {
					t.Errorf("said %d times, want it %v: %v", n, c.want, p.errs.find(feed.ErrNoKeyReads))
				}
			})
		})
	}
}

// plainSource can do what a Source must, and no more.
func plainSource(w *world) feed.Source { return struct{ feed.Source }{w.orders} }

// A key that hangs holds up no other key, however many changes are behind it. The next owner goes on with the key
// though nothing new is written.
func TestAKeyThatHangsGoesOnUnderTheNextOwner(t *testing.T) {
	for name, byHand := range map[string]bool{"by itself": false, "by hand": true} {
		t.Run(name, func(t *testing.T) { testKeyThatHangs(t, byHand) })
	}
}

func testKeyThatHangs(t *testing.T, byHand bool) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "stuck", 0)
		for i := range 300 {
			w.put("oslo", fmt.Sprint("item-", i), i)
			w.put(fmt.Sprint("city-", i%7), fmt.Sprint("item-", i), i)
		}
		var mu sync.Mutex
		confirmed, last := map[feed.PartitionKey]int{}, map[feed.PartitionKey]int64{}
		handler := func(hangs bool) feed.Handler {
			return feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
				if hangs && slices.Contains(itemIDs(b), "stuck") {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				if byHand {
					if err := b.Checkpoint(ctx); err != nil {
						return err
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for _, c := range b.Changes {
					if confirmed[c.PartitionKey]++; c.LSN <= last[c.PartitionKey] {
						t.Errorf("LSN %d of %s after %d", c.LSN, c.PartitionKey, last[c.PartitionKey])
					}
					last[c.PartitionKey] = c.LSN
				}
				return nil
			})
		}
		all := func() (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, of := range confirmed {
				n += of
			}
			return n
		}
		o := changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 4, BufferItems: 60, MaxItems: 20,
			Manual: byHand, Drain: time.Second,
		}
		p := w.run("a", handler(true), o)
		w.until(5*time.Minute, "the other keys are done", func() bool { return all() == 300 })
		p.kill(t)
		p = w.run("b", handler(false), o)
		w.until(5*time.Minute, "all is done", func() bool { return all() == 601 })
		time.Sleep(time.Minute)
		p.stop(t)
		if all() != 601 || w.pending() != 0 {
			t.Errorf("%d confirmed, want 601; %d pending", all(), w.pending())
		}
	})
}

// Changes are parked just before an outage is recognized. The next owner, whose handler works, hands them over again
// though nothing new is written.
func TestWhatAnOutageHasParkedReturnsUnderTheNextOwnerOfAQuietFeed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		box, said := &letterBox{}, &hearsay{}
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box,
		}, Hooks: said.hooks()}
		p := w.run("a", failsOn(func(feed.Change) error { return errHandler }), o)
		for i := range 3 { // one after the other
			w.put(fmt.Sprint("city-", i), "item", i)
			time.Sleep(time.Minute)
		}
		if len(box.all()) != 2 || len(said.about("outage")) != 1 {
			t.Fatalf("letters %q, outages %q: want two letters before an outage", box.names(), said.about("outage"))
		}
		p.stop(t)
		h := &tally{}
		p = w.run("b", h, o)
		w.until(5*time.Minute, "no letters", func() bool { return len(box.all()) == 0 })
		p.stop(t)
		if items, again := h.items(); items != 3 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
	})
}
