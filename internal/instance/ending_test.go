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
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
)

// idle has what it is given in hand.
type idle struct {
	changefeed.Handler
	running, cut []string
	killed       bool
}

func (h *idle) Running() []string { return h.running }

func (h *idle) Unfinished() []string {
	defer func() { h.cut = nil }()
	return h.cut
}

func (h *idle) Kill() { h.killed = true }

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
		{"one", []sent{{os.Interrupt, 0}}, "ending: the batch of -FF has 10s to finish (--drain); Ctrl-C again ends at once", false},
		{"two interrupts at once", []sent{{os.Interrupt, 0}, {os.Interrupt, 0}}, at, true},
		{"a signal and its echo", []sent{{syscall.SIGTERM, 0}, {syscall.SIGTERM, sameSignal}}, "ending: the batch of -FF has", false},
		{"two signals", []sent{{syscall.SIGTERM, 0}, {syscall.SIGTERM, sameSignal + time.Millisecond}}, at, true},
		{"a signal, its echo and an interrupt", []sent{{syscall.SIGTERM, 0}, {syscall.SIGTERM, 0}, {os.Interrupt, 0}}, at, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &idle{running: []string{"-FF"}}
				said, exited := "", false
				e := &ending{func(text string) { said = text }, h, 10 * time.Second, time.Minute, func() { exited = true }}
				signals, over, done := make(chan os.Signal), make(chan struct{}), make(chan struct{})
				go func() {
					e.follow(signals, over)
					close(done)
				}()
				for _, s := range tt.sent {
					time.Sleep(s.after)
					signals <- s.signal
				}
				synctest.Wait()
				close(over)
				<-done
				if !strings.HasPrefix(said, tt.last) || (said == "") != (tt.last == "") || exited != tt.exit || h.killed != tt.exit {
					t.Errorf("said %q, exited %v, killed %v, want %q, %v", said, exited, h.killed, tt.last, tt.exit)
				}
			})
		})
	}
}

func TestAnEndingSaysWhatItWaitsFor(t *testing.T) {
	var e ending
	if got := e.waits(nil); !strings.Contains(got, "no batch is in hand") {
		t.Errorf("got %q", got)
	}
	if got := e.waits([]string{"-0123456789", "10-20", "20-30", "30-40", "40-FF"}); !strings.Contains(got, "the batches of -0123456789, 10-20, 20-30, 2 more have 0s to finish") {
		t.Errorf("got %q", got)
	}
}

func TestBatchesThatWereCutAreReportedAtTheEnd(t *testing.T) {
	for _, tt := range []struct {
		cut  []string
		want string
	}{
		{nil, ""},
		{[]string{"-FF"}, "ended: the batch of -FF was not finished within 10s (--drain) and will come again"},
		{[]string{"-1F", "1F-FF"}, "ended: the batches of -1F, 1F-FF were not finished within 10s (--drain) and will come again"},
	} {
		said := ""
		e := &ending{say: func(text string) { said = text }, inHand: &idle{cut: tt.cut}, drain: 10 * time.Second}
		if e.last(); said != tt.want {
			t.Errorf("said %q, want %q", said, tt.want)
		}
	}
}

func TestAContainerThatWasMadeAnewEndsTheProcessor(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	hooks := endingHooks(end)
	hooks.Error(&changefeed.Error{Err: changefeed.ErrThrottled})
	if ctx.Err() != nil {
		t.Error("an error that may pass has ended it")
	}
	hooks.Error(&changefeed.Error{Err: fmt.Errorf("read: %w", cosmos.ErrMadeAnew)})
	if !errors.Is(context.Cause(ctx), cosmos.ErrMadeAnew) {
		t.Errorf("ended by %v", context.Cause(ctx))
	}
}

// leaseless is a lease store whose writes fail from a time on, as when its server is away.
type leaseless struct {
	changefeed.LeaseStore
	away *atomic.Bool
}

func (s leaseless) Update(ctx context.Context, l changefeed.Record) (changefeed.Record, error) {
	if s.away.Load() {
		return l, errors.New("connection refused")
	}
	return s.LeaseStore.Update(ctx, l)
}

// Whoever stops an instance while its lease store is away must not believe that others can go on at once.
func TestAnEndSaysWhichLeasesWereNotFreed(t *testing.T) {
	// Package signal begins a goroutine at its first use, which must not be in a bubble.
	first := make(chan os.Signal, 1)
	signal.Notify(first, syscall.SIGWINCH)
	defer signal.Stop(first)
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			db, err := docstore.Open("", docstore.Options{InMemory: true})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
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
			var said []string
			var down atomic.Bool
			i := &Instance{Settings: Settings{
				Name: "mailer", Say: func(text string) { said = append(said, text) },
				Options: changefeed.Options{Instance: "one", Expiration: time.Minute, Drain: time.Second, MinLeases: 2, Hooks: changefeed.Hooks{Error: func(*changefeed.Error) {}}},
			}}
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Second, func() {
				down.Store(away)
				stop()
			})
			if err := i.process(ctx, orders, leaseless{store, &down}, &idle{}); err != nil {
				t.Fatal(err)
			}
			edge := "2" + strings.Repeat("0", 31)
			want := "ended: leases -" + edge + ", " + edge + "-FF were not freed, so others take over after 1m0s (--expiration), and what was not stored comes again"
			if got := strings.Join(said, "\n"); away && got != want || !away && got != "" {
				t.Errorf("with a store that is away (%v): %q", away, got)
			}
		})
	}
}
