package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/scratch"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// How an instance ends
//
// The first Ctrl-C, SIGTERM or SIGHUP ends the processor, which waits for the batches in the handler. The second ends
// the process and the programs: these have process groups of their own, so the terminal's signal does not reach them.

// ending reacts to the signals that end the process, and reports to the user.
type ending struct {
	say        func(text string)
	inHand     Handler
	drain      time.Duration
	expiration time.Duration
	exit       func()
	signals    []os.Signal // nil means [scratch.Ends]
}

// watchSignals follows the signals of the process until the caller calls stop.
func (e *ending) watchSignals() (stop func()) {
	// Package signal does not wait for a reader, so two signals at the same time need room for two.
	signals := make(chan os.Signal, 2)
	ends := e.signals
	if ends == nil {
		ends = scratch.Ends()
	}
	signal.Notify(signals, ends...)
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { e.followSignals(signals, over) })
	return func() {
		signal.Stop(signals)
		close(over)
		watching.Wait()
	}
}

// followSignals takes the first signal as the one that has ended the processor, and the second as an order to end at
// once.
func (e *ending) followSignals(signals <-chan os.Signal, over <-chan struct{}) {
	select {
	case <-signals:
	case <-over:
		return
	}
	e.inHand.Unfinished() // discards leases that were given away, which is no end
	e.say(e.describeWaiting(e.inHand.Running()))
	said := time.Now()
	for again := false; !again; {
		select {
		case s := <-signals:
			again = scratch.IsAgain(s, time.Since(said))
		case <-over:
			return
		}
	}
	// Read before the kill, because no batch runs after the kill.
	cut := e.inHand.Running()
	e.inHand.Kill()
	text := fmt.Sprintf("ended at once; its leases are free in %v", e.expiration)
	if len(cut) > 0 {
		text += fmt.Sprintf(", and the batches of %s come again", strings.Join(first(cut), ", "))
	}
	e.say(text)
	e.exit()
}

// A Closer is a handler whose program ends after the processors.
type Closer interface {
	Close() // waits until the program has ended
	Kill()  // ends the program at once
}

// CloseWatched closes a handler after its processors, which follow the signals no longer. If a signal is the second one
// of the process, the handler is killed, and exit ends the process. root is the context that the first signal ends. nil
// for ends means [scratch.Ends].
func CloseWatched(root context.Context, c Closer, ends []os.Signal, exit func()) {
	signals := make(chan os.Signal, 2)
	if ends == nil {
		ends = scratch.Ends()
	}
	signal.Notify(signals, ends...)
	var first time.Time
	if root.Err() != nil {
		first = time.Now() // or before
	}
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		if scratch.AwaitAgain(first, signals, over) {
			c.Kill()
			exit()
		}
	})
	c.Close()
	signal.Stop(signals)
	close(over)
	watching.Wait()
}

// reportUnfinished reports the batches that were not finished in time.
func (e *ending) reportUnfinished() {
	leases := e.inHand.Unfinished()
	if len(leases) == 0 {
		return
	}
	batches, were := "the batch", "was"
	if len(leases) > 1 {
		batches, were = "the batches", "were"
	}
	e.say(fmt.Sprintf("ended: %s of %s %s not finished within %v (--drain) and will come again", batches,
		strings.Join(first(leases), ", "), were, e.drain))
}

// keptLeases are the leases which an instance has not freed at the end.
type keptLeases struct {
	mu     sync.Mutex
	tokens []string
}

// hooks note the leases that are given up after the end of ctx and not freed.
func (k *keptLeases) hooks(ctx context.Context) changefeed.Hooks {
	return changefeed.Hooks{Released: func(_ context.Context, l feed.Lease, why feed.Reason) {
		if ctx.Err() == nil || why != feed.ReasonLost && why != feed.ReasonStuck {
			return
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.tokens = append(k.tokens, l.Token)
	}}
}

// reportKept says which leases were not freed, and when other instances can take them.
func (k *keptLeases) reportKept(say func(string), expiration time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.tokens) == 0 {
		return
	}
	slices.Sort(k.tokens)
	leases := "lease " + first(k.tokens)[0] + " was"
	if len(k.tokens) > 1 {
		leases = "leases " + strings.Join(first(k.tokens), ", ") + " were"
	}
	say(fmt.Sprintf("ended: %s not freed, so others take over after %v (--expiration), and what was not stored "+
		"comes again", leases, expiration))
}

// describeWaiting says for which batches the end waits.
func (e *ending) describeWaiting(leases []string) string {
	if len(leases) == 0 {
		return "ending: no batch is in hand, the leases are being freed; Ctrl-C again ends at once"
	}
	batches, have := "the batch", "has"
	if len(leases) > 1 {
		batches, have = "the batches", "have"
	}
	return fmt.Sprintf("ending: %s of %s %s %v to finish (--drain); Ctrl-C again ends at once",
		batches, strings.Join(first(leases), ", "), have, e.drain)
}

// first returns the tokens of a few leases, and how many more there are.
func first(leases []string) []string {
	const most = 3
	if n := len(leases) - most; n > 0 {
		return append(slices.Clone(leases[:most]), fmt.Sprintf("%d more", n))
	}
	return leases
}

// isFinal reports whether no further attempt can succeed: a container was deleted and made anew, so that the resource
// ids of the old one mean nothing and the changes of the new one wait; or the disk of a store has failed, and the
// store refuses everything until it is opened again.
func isFinal(err error) bool {
	isOver := errors.Is(err, docstore.ErrFailed) || errors.Is(err, docstore.ErrClosed)
	return isOver || errors.Is(err, cosmos.ErrMadeAnew)
}

// endingHooks end the processor at an error that is final. A supervisor starts the processor again.
func endingHooks(end context.CancelCauseFunc) changefeed.Hooks {
	return changefeed.Hooks{Error: func(_ context.Context, err *feed.Error) {
		if isFinal(err) {
			end(err)
		}
	}}
}

// errHandled ends a processor that has handled all changes.
var errHandled = errors.New("all changes are handled")

// leftError ends a processor that has handled all changes except those of broken leases.
type leftError struct{ error }

// Error says which changes are done, and which are not.
func (e *leftError) Error() string {
	return fmt.Sprintf("all other changes are handled, and these leases stand still until somebody mends them: %v",
		e.error)
}

// Unwrap returns the errors of the leases.
func (e *leftError) Unwrap() error { return e.error }

// endWhenHandled ends the processor as soon as the processor is ready and the unit has handled all changes. The
// returned function waits for the end of this watch. endWhenHandled waits for Ready, because while leases are being
// made, the present leases may already have no changes left.
func (i *Instance) endWhenHandled(ctx context.Context, end context.CancelCauseFunc, source feed.Source,
	store feed.LeaseStore,
) (wait func()) {
	ready := make(chan struct{})
	before := i.Options.Hooks.Ready
	i.Options.Hooks.Ready = func(ctx context.Context) {
		before(ctx)
		close(ready)
	}
	failed := func(err error) {
		i.Options.Hooks.Error(ctx, &feed.Error{
			Origin: feed.OriginSource,
			Err:    fmt.Errorf("see whether all is handled: %w", err),
		})
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ready:
		case <-ctx.Done():
		}
		handled, err := unit.AwaitHandled(ctx, source, store, failed)
		switch {
		case handled:
			end(errHandled)
		case err != nil:
			end(&leftError{err})
		}
	})
	return func() {
		end(nil)
		watching.Wait()
	}
}
