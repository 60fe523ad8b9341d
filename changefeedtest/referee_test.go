package changefeedtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/changefeedtest"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// referee is a handler that holds its caller to the promises of a processor. It asks its contexts without a
// look that could end them.
type referee struct {
	step func(context.Context) error

	mu      sync.Mutex
	feeds   map[feed.PartitionKey][]string // the versions of a key, in the order in which they first came
	done    map[string]bool                // versions of which a call has returned nil
	active  map[feed.PartitionKey][]context.Context
	owners  map[feed.PartitionKey]owner
	begun   map[string]bool // versions with which a batch has begun
	inside  map[string]bool // versions that came within a batch, not as its first
	broken  []string
	seen    map[string]int // what happened, for the test that it happens at all
	running int
}

type owner struct {
	instance string
	epoch    int64
	keys     string // range of its lease
}

func newReferee(step func(context.Context) error, seen map[string]int) *referee {
	return &referee{
		step: step, feeds: map[feed.PartitionKey][]string{}, done: map[string]bool{}, seen: seen,
		active: map[feed.PartitionKey][]context.Context{}, owners: map[feed.PartitionKey]owner{},
		begun: map[string]bool{}, inside: map[string]bool{},
	}
}

func version(c feed.Change) string { return fmt.Sprint(c.PartitionKey, c.ID, "@", c.LSN) }

func (r *referee) fail(format string, args ...any) {
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// Handle implements [feed.Handler].
func (r *referee) Handle(ctx context.Context, b *feed.Batch) error {
	r.enter(ctx, b)
	err := r.step(ctx)
	r.leave(ctx, b, err)
	return err
}

func (r *referee) enter(ctx context.Context, b *feed.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running++; r.running > 1 {
		r.seen["calls at the same time"]++
	}
	if len(b.Changes) > 1 {
		r.seen["batches of several changes"]++
	}
	if first := version(b.Changes[0]); r.inside[first] {
		r.seen["the end of a batch again"]++
	}
	for i, c := range b.Changes {
		if i > 0 {
			r.inside[version(c)] = true
		}
		r.enterChange(ctx, b, i, c)
	}
}

// enterChange checks the delivery of a change.
func (r *referee) enterChange(ctx context.Context, b *feed.Batch, i int, c feed.Change) {
	known := r.feeds[c.PartitionKey]
	if !slices.Contains(known, version(c)) {
		known = append(known, version(c))
		r.feeds[c.PartitionKey] = known
	} else {
		r.seen["again"]++
	}
	isFirst := !slices.ContainsFunc(b.Changes[:i], func(o feed.Change) bool { return o.PartitionKey == c.PartitionKey })
	if i > 0 && b.Changes[i-1].LSN > c.LSN {
		r.fail("%s comes after LSN %d in its batch", version(c), b.Changes[i-1].LSN)
	}
	if !isFirst {
		return
	}
	for _, earlier := range known[:slices.Index(known, version(c))] {
		if !r.done[earlier] {
			r.fail("%s comes while %s is unfinished", version(c), earlier)
		}
	}
	was, is := r.owners[c.PartitionKey], owner{b.Instance, b.Epoch, b.LeaseToken}
	if is.epoch < was.epoch || is.instance != was.instance && is.epoch == was.epoch {
		r.fail("%s comes to %v after %v", version(c), is, was)
	}
	if was.instance != "" && was.instance != is.instance {
		r.seen["another owner"]++
	}
	if was.keys != "" && was.keys != is.keys {
		r.seen["a split"]++
	}
	r.owners[c.PartitionKey] = is
	for _, other := range r.active[c.PartitionKey] {
		if r.seen["beside an old owner"]++; changefeedtest.CauseOf(other) == nil {
			r.fail("%s comes while a call with the key has not been cancelled", version(c))
		}
	}
	r.active[c.PartitionKey] = append(r.active[c.PartitionKey], ctx)
}

func (r *referee) leave(ctx context.Context, b *feed.Batch, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if cause := changefeedtest.CauseOf(ctx); cause != nil {
		r.seen[cause.Error()]++
	}
	for _, c := range b.Changes {
		isCall := func(o context.Context) bool { return o == ctx }
		r.active[c.PartitionKey] = slices.DeleteFunc(r.active[c.PartitionKey], isCall)
		isOther := func(o feed.Change) bool { return o.LSN == 9 && o.ID != c.ID }
		if c.LSN == 9 && !slices.ContainsFunc(b.Changes, isOther) {
			r.fail("%s comes without the other change of its transaction", version(c))
		}
		if err == nil {
			r.done[version(c)] = true
		}
	}
}

// effects are the broken promises, and what is left at the end.
func (r *referee) effects() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]int{"done": len(r.done)}
	for _, text := range r.broken {
		all[text]++
	}
	return all
}

// What Torture delivers is what a processor may deliver, and all of it happens. Handlers are quick, or slow, or deaf to
// their contexts, or they fail now and then.
func TestTheDelivererKeepsThePromises(t *testing.T) {
	for name, step := range map[string]func(context.Context) error{
		"quick": func(context.Context) error { return nil },
		"looks": func(ctx context.Context) error { return errors.Join(ctx.Err(), ctx.Err(), ctx.Err()) },
		"slow":  func(ctx context.Context) error { return pause.For(ctx, 3*time.Second) },
		"deaf": func(ctx context.Context) error {
			lately(ctx)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			changefeedtest.Torture(t, changefeedtest.TortureOptions{Seeds: 100, Freezes: name == "looks"},
				func(*testing.T) (feed.Handler, func() map[string]int) {
					r := newReferee(step, seen)
					return r, r.effects
				})
			wants := []string{
				"again", "another owner", "a split", "the end of a batch again", "batches of several changes",
			}
			if name != "quick" {
				wants = append(wants, "lease lost", "processor stopped", "handler deadline exceeded")
			}
			if name == "slow" || name == "deaf" {
				wants = append(wants, "calls at the same time")
			}
			if name == "deaf" || name == "looks" {
				wants = append(wants, "beside an old owner")
			}
			for _, want := range wants {
				if seen[want] == 0 {
					t.Errorf("it never happens: %s; seen %v", want, seen)
				}
			}
			t.Log(seen)
		})
	}
}

// A seed tells the same story each time, so a story can be shortened, and repeated.
func TestASeedTellsTheSameStory(t *testing.T) {
	for seed := range uint64(8) {
		var stories [2]string
		for i := range stories {
			stories[i] = changefeedtest.TortureReport(t, changefeedtest.TortureOptions{Seeds: 1, First: seed + 1},
				each(func(ctx context.Context, s *table, _ *feed.Batch, c feed.Change) error {
					s.do(func(rows map[string]int64) { rows[c.ID]++ })
					return pause.For(ctx, time.Second)
				}))
		}
		if stories[0] != stories[1] {
			t.Errorf("seed %d: two stories:\n%s\n%s", seed+1, stories[0], stories[1])
		}
	}
}
