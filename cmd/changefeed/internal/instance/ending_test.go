package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/scratch"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// idle has what it is given in hand.
type idle struct {
	feed.Handler
	running, cut []string
	killed       bool
}

func (h *idle) Running() []string { return h.running }

func (h *idle) Unfinished() []string {
	defer func() { h.cut = nil }()
	return h.cut
}

func (h *idle) Kill() { h.killed, h.running = true, nil }

// A terminal and timeout(1) may send a signal twice; a person who types Ctrl-C twice means it.
func TestTheSecondSignalEndsAllAtOnce(t *testing.T) {
	type sent struct {
		signal os.Signal
		after  time.Duration
	}
	const at = "ended at once; its leases are free in 1m0s, and the batches of -FF come again"
	for _, tt := range []struct {
		name string
		sent []sent
		last string // of what is said
		exit bool
	}{
		{"none", nil, "", false},
		{
			"one",
			[]sent{{os.Interrupt, 0}},
			"ending: the batch of -FF has 10s to finish (--drain); Ctrl-C again ends at once", false,
		},
		{"two interrupts at once", []sent{{os.Interrupt, 0}, {os.Interrupt, 0}}, at, true},
		{
			"a signal and its echo",
			[]sent{{syscall.SIGTERM, 0}, {syscall.SIGTERM, scratch.SameSignal}},
			"ending: the batch of -FF has", false,
		},
		{
			"a closed window and its echo",
			[]sent{{syscall.SIGHUP, 0}, {syscall.SIGHUP, 0}},
			"ending: the batch of -FF has", false,
		},
		{
			"two signals",
			[]sent{{syscall.SIGTERM, 0}, {syscall.SIGTERM, scratch.SameSignal + time.Millisecond}},
			at,
			true,
		},
		{
			"a signal, its echo and an interrupt",
			[]sent{{syscall.SIGTERM, 0}, {syscall.SIGTERM, 0}, {os.Interrupt, 0}},
			at, true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &idle{running: []string{"-FF"}}
				said, exited := "", false
				e := &ending{
					say: func(text string) { said = text }, inHand: h, drain: 10 * time.Second, expiration: time.Minute,
					exit: func() { exited = true },
				}
				signals, over, done := make(chan os.Signal), make(chan struct{}), make(chan struct{})
				go func() {
					e.followSignals(signals, over)
					close(done)
				}()
				for _, s := range tt.sent {
					time.Sleep(s.after)
					signals <- s.signal
				}
				synctest.Wait()
				close(over)
				<-done
				if !strings.HasPrefix(said, tt.last) || (said == "") != (tt.last == "") || exited != tt.exit ||
					h.killed != tt.exit {
					t.Errorf("said %q, exited %v, killed %v, want %q, %v", said, exited, h.killed, tt.last, tt.exit)
				}
			})
		})
	}
}

func TestAnEndingSaysWhatItWaitsFor(t *testing.T) {
	var e ending
	if got := e.describeWaiting(nil); !strings.Contains(got, "no batch is in hand") {
		t.Errorf("got %q", got)
	}
	if got := e.describeWaiting([]string{"-0123456789", "10-20", "20-30", "30-40", "40-FF"}); !strings.Contains(got,
		"the batches of -0123456789, 10-20, 20-30, 2 more have 0s to finish") {
		t.Errorf("got %q", got)
	}
	if got := e.describeWaiting([]string{"-10", "10-20", "20-30", "30-FF"}); !strings.Contains(got,
		"the batches of -10, 10-20, 20-30, 1 more have 0s to finish") {
		t.Errorf("got %q", got)
	}
}

// What was cut because a lease was given away is the business of its next owner, and no end.
func TestLeasesThatWereGivenAwayAreNotReportedAtTheEnd(t *testing.T) {
	var said []string
	h := &idle{cut: []string{"-1F"}}
	e := &ending{say: func(text string) { said = append(said, text) }, inHand: h, drain: 10 * time.Second}
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signals <- os.Interrupt
	e.say = func(text string) { // the signal is taken
		said = append(said, text)
		close(over)
	}
	e.followSignals(signals, over)
	if e.reportUnfinished(); len(said) != 1 || !strings.HasPrefix(said[0], "ending: ") {
		t.Errorf("said %q", said)
	}
}

// Each kind of signals that ends a process reaches it.
func TestTheSignalsOfTheProcessAreFollowed(t *testing.T) {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		safe := make(chan os.Signal, 1) // the test does not end by them
		signal.Notify(safe, s)
		said := make(chan string, 1)
		e := &ending{say: func(text string) { said <- text }, inHand: &idle{}}
		stop := e.watchSignals()
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Signal(s)
		}
		if err != nil {
			t.Skipf("a process cannot signal itself on this system: %v", err)
		}
		select {
		case <-said:
		case <-time.After(10 * time.Second):
			t.Errorf("nothing is said of %v", s)
		}
		stop()
		signal.Stop(safe)
	}
}

// Leases are lost in the course of work, too. Those that are given up at the end and not freed are named.
func TestLeasesThatAreLostBeforeTheEndAreNotNamed(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	var kept keptLeases
	hooks := kept.hooks(ctx)
	hooks.Released(t.Context(), feed.Lease{Token: "before"}, feed.ReasonLost)
	end()
	hooks.Released(t.Context(), feed.Lease{Token: "stuck"}, feed.ReasonStuck)
	hooks.Released(t.Context(), feed.Lease{Token: "freed"}, feed.ReasonStopped)
	said := ""
	kept.reportKept(func(text string) { said += text }, time.Minute)
	if want := "ended: lease stuck was not freed, so others take over after 1m0s (--expiration), and what was not " +
		"stored comes again"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
}

func TestBatchesThatWereCutAreReportedAtTheEnd(t *testing.T) {
	for _, tt := range []struct {
		cut  []string
		want string
	}{
		{nil, ""},
		{[]string{"-FF"}, "ended: the batch of -FF was not finished within 10s (--drain) and will come again"},
		{
			[]string{"-1F", "1F-FF"},
			"ended: the batches of -1F, 1F-FF were not finished within 10s (--drain) and will come again",
		},
	} {
		said := ""
		e := &ending{say: func(text string) { said = text }, inHand: &idle{cut: tt.cut}, drain: 10 * time.Second}
		if e.reportUnfinished(); said != tt.want {
			t.Errorf("said %q, want %q", said, tt.want)
		}
	}
}

// A supervisor starts an instance again after what no further attempt can mend.
func TestWhatCannotPassEndsTheProcessor(t *testing.T) {
	for _, final := range []error{cosmos.ErrMadeAnew, docstore.ErrFailed, docstore.ErrClosed} {
		ctx, end := context.WithCancelCause(t.Context())
		hooks := endingHooks(end)
		hooks.Error(t.Context(), &feed.Error{Err: feed.ErrThrottled})
		if ctx.Err() != nil {
			t.Error("an error that may pass has ended it")
		}
		hooks.Error(t.Context(), &feed.Error{Err: fmt.Errorf("read: %w", final)})
		if !errors.Is(context.Cause(ctx), final) {
			t.Errorf("ended by %v, want %v", context.Cause(ctx), final)
		}
		end(nil)
	}
}

// inMemory is a monitored container, and the lease store of a unit on it.
func inMemory(t *testing.T) (*docstore.Container, feed.LeaseStore) {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	container, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := docstore.NewLeases(t.Context(), container, "mailer", orders)
	if err != nil {
		t.Fatal(err)
	}
	return orders, store
}

// leaseless is a lease store whose writes fail from a time on, as when its server is away.
type leaseless struct {
	feed.LeaseStore
	away *atomic.Bool
}

func (s leaseless) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if s.away.Load() {
		return l, errors.New("connection refused")
	}
	return s.LeaseStore.Update(ctx, l)
}

// Whoever stops an instance while its lease store is away must not believe that others can go on at once.
func TestAnEndSaysWhichLeasesWereNotFreed(t *testing.T) {
	// Package signal begins a goroutine at its first use, which must not be in a bubble.
	first := make(chan os.Signal, 1)
	signal.Notify(first, syscall.SIGHUP)
	defer signal.Stop(first)
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			orders, store := inMemory(t)
			var said []string
			var down atomic.Bool
			i := &Instance{Settings: Settings{
				Name: "mailer", Say: func(text string) { said = append(said, text) },
				Options: changefeed.Options{
					Instance: "one", Expiration: time.Minute, Drain: time.Second, MinLeases: 2,
					Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
				},
			}}
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Second, func() {
				down.Store(away)
				stop()
			})
			if err := i.runProcessor(ctx, orders, leaseless{store, &down}, &idle{}); err != nil {
				t.Fatal(err)
			}
			edge := "2" + strings.Repeat("0", 31)
			want := "ended: leases -" + edge + ", " + edge +
				"-FF were not freed, so others take over after 1m0s (--expiration), and what was not stored comes again"
			if got := strings.Join(said, "\n"); away && got != want || !away && got != "" {
				t.Errorf("with a store that is away (%v): %q", away, got)
			}
		})
	}
}

// slow is a lease store whose list takes a minute.
type slow struct {
	feed.LeaseStore
	listing *atomic.Bool
}

func (s slow) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	s.listing.Store(true)
	defer s.listing.Store(false)
	time.Sleep(time.Minute)
	return s.LeaseStore.List(ctx)
}

// While an instance makes its leases, those that are there may have nothing left: no end before it is ready. And
// nothing goes on after the end.
func TestTheEndOfAllWorkIsWatchedFromWhenAnInstanceIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orders, store := inMemory(t)
		lease := feed.Record{
			Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(), Version: 1,
			Position: feed.At(`"0"`),
		}
		if _, err := store.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		for _, slowly := range []bool{false, true} {
			ctx, end := context.WithCancelCause(t.Context())
			ready, listing := 0, new(atomic.Bool)
			leases := store
			if slowly {
				leases = slow{store, listing}
			}
			i := &Instance{}
			i.Options.Hooks = changefeed.Hooks{
				Ready: func(context.Context) { ready++ }, Error: func(context.Context, *feed.Error) {},
			}
			wait := i.endWhenHandled(ctx, end, orders, leases)
			time.Sleep(time.Hour)
			if ctx.Err() != nil {
				t.Errorf("ended before it was ready: %v", context.Cause(ctx))
			}
			i.Options.Hooks.Ready(t.Context())
			time.Sleep(10 * time.Second)
			if ended := errors.Is(context.Cause(ctx), errHandled); ended == slowly || ready != 1 {
				t.Errorf("ready and with nothing to do: %v; Ready was called %d times", context.Cause(ctx), ready)
			}
			if wait(); listing.Load() {
				t.Error("the leases are listed after the end")
			}
		}
	})
}

// anew is a container that somebody deletes and makes anew, at a time.
type anew struct {
	*docstore.Container
	at time.Time
}

func (c anew) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	if time.Now().After(c.at) {
		return feed.Page{}, cosmos.ErrMadeAnew
	}
	return c.Container.Read(ctx, r, from, o)
}

// What ends an instance though nobody has asked for that is an error, so that it is started again. What it had in hand
// then is said.
func TestAnInstanceEndsWithTheReason(t *testing.T) {
	first := make(chan os.Signal, 1) // see above
	signal.Notify(first, syscall.SIGHUP)
	defer signal.Stop(first)
	synctest.Test(t, func(t *testing.T) {
		orders, store := inMemory(t)
		said := ""
		i := &Instance{Settings: Settings{
			Name: "mailer", Say: func(text string) { said += text },
			Options: changefeed.Options{
				Instance: "one", Start: feed.FromBeginning(), Drain: 10 * time.Second, RetryMin: time.Second,
				Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
			},
		}}
		err := i.runProcessor(t.Context(), anew{orders, time.Now().Add(time.Minute)}, store,
			&idle{cut: []string{"-FF"}})
		if !errors.Is(err, cosmos.ErrMadeAnew) {
			t.Errorf("ended with %v", err)
		}
		if want := "ended: the batch of -FF was not finished within 10s (--drain) and will come again"; said != want {
			t.Errorf("said %q, want %q", said, want)
		}
		if i.Options.RetryMin != time.Second || i.Options.RetryMax != lastRetry {
			t.Errorf("a batch that fails is tried again after %v to %v", i.Options.RetryMin, i.Options.RetryMax)
		}
	})
}
