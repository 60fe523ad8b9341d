package changefeed_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// needing is a handler with needs.
type needing struct {
	*tally
	needs changefeed.Needs
}

func (n needing) Needs() changefeed.Needs { return n.needs }

// A handler receives what it and its user want, from where its user or else the handler says.
func TestAHandlerStatesItsNeeds(t *testing.T) {
	without := func(id string) func(*feed.Change) bool { return func(c *feed.Change) bool { return c.ID != id } }
	for _, c := range []struct {
		name   string
		start  feed.Start
		filter func(*feed.Change) bool
		want   string
	}{
		{"the needs alone", feed.Start{}, nil, "a c d e"},
		{"both filters", feed.Start{}, without("c"), "a d e"},
		{"the start of the user", feed.FromNow(), nil, "e"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				for i, id := range []string{"a", "b", "c", "d"} {
					w.put("oslo", id, i)
				}
				acquired := ""
				note := func(who string) changefeed.Hooks {
					return changefeed.Hooks{Acquired: func(context.Context, feed.Lease) { acquired += who }}
				}
				h := needing{&tally{}, changefeed.Needs{
					Filter: without("b"), Start: feed.FromBeginning(),
					Hooks: note("handler "),
				}}
				p := w.run("a", h, changefeed.Options{Start: c.start, Filter: c.filter, Hooks: note("user ")})
				time.Sleep(time.Minute)
				w.put("oslo", "e", 5)
				time.Sleep(time.Minute)
				p.stop(t)
				if got := strings.Join(h.ids(), " "); got != c.want || acquired != "user handler " {
					t.Errorf("handled %q, want %q; hooks %q", got, c.want, acquired)
				}
			})
		})
	}
}

// The concurrency of a handler is used if its user sets none.
func TestAHandlerStatesItsConcurrency(t *testing.T) {
	for _, c := range []struct{ user, want int }{{0, 4}, {1, 1}, {2, 2}} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			inHand, most := 0, 0
			h := needing{&tally{}, changefeed.Needs{Concurrency: 4}}
			h.before = func(ctx context.Context, _ *feed.Batch) error {
				h.mu.Lock()
				inHand++
				most = max(most, inHand)
				h.mu.Unlock()
				waitFor(ctx, time.Second)
				h.mu.Lock()
				inHand--
				h.mu.Unlock()
				return nil
			}
			w.fill(40)
			p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), Concurrency: c.user, MaxItems: 1})
			time.Sleep(time.Minute)
			p.stop(t)
			if most != c.want {
				t.Errorf("a concurrency of %d has %d batches at once, want %d", c.user, most, c.want)
			}
		})
	}
}

// A handler that needs the order of the feed is not run with options that change the order.
func TestOptionsThatAHandlerCannotWorkWithAreRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := needing{&tally{}, changefeed.Needs{InOrder: true}}
		for field, o := range map[string]changefeed.Options{
			"":                      {Concurrency: 1},
			"Concurrency":           {Concurrency: 2},
			"OnFailure.MaxAttempts": {OnFailure: changefeed.FailurePolicy{MaxAttempts: 3}},
			"OnFailure.MaxAge":      {OnFailure: changefeed.FailurePolicy{MaxAge: time.Hour}},
			"OnFailure.DeadLetters": {OnFailure: changefeed.FailurePolicy{DeadLetters: &letterBox{}}},
			"OnFailure.HoldKeys":    {OnFailure: changefeed.FailurePolicy{HoldKeys: true}},
		} {
			_, err := changefeed.New(w.orders, w.leases, h, o)
			wrong, refused := errors.AsType[*changefeed.OptionError](err)
			if refused != (field != "") || refused && (wrong.Field != field ||
				!strings.Contains(wrong.Want, "in the order of the feed")) {
				t.Errorf("%s: got %v", field, err)
			}
		}
		h.needs.Concurrency = 2
		_, err := changefeed.New(w.orders, w.leases, h, changefeed.Options{})
		if wrong, refused := errors.AsType[*changefeed.OptionError](err); !refused ||
			wrong.Field != "Needs.Concurrency" {
			t.Errorf("a handler that needs the order of the feed and a concurrency of 2: %v", err)
		}
	})
}

// A hook of a handler takes no line from the log, and is called beside a hook of its user.
func TestAHookOfAHandlerReplacesNoDefault(t *testing.T) {
	var log strings.Builder
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	for _, hasOwn := range []bool{false, true} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			log.Reset()
			own, needed := 0, 0
			h := needing{failsOn(onID("bad")), changefeed.Needs{
				Hooks: changefeed.Hooks{Parked: func(context.Context, feed.DeadLetter) { needed++ }},
			}}
			o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
				MaxAttempts: 1,
				DeadLetters: &letterBox{},
			}}
			if hasOwn {
				o.Hooks.Parked = func(context.Context, feed.DeadLetter) { own++ }
			}
			w.put("oslo", "bad", 1)
			p := w.run("a", h, o)
			time.Sleep(time.Minute)
			p.stop(t)
			lines := strings.Count(log.String(), "change parked")
			if needed != 1 || (own == 1) != hasOwn || (lines == 1) == hasOwn {
				t.Errorf("own hook %v: called %d and %d times, %d lines in the log", hasOwn, own, needed, lines)
			}
		})
	}
}
