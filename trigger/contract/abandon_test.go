package contract

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/millrace/changefeed/feed"
)

// What a program has handled and not confirmed is abandoned when it ends, before anybody sees the end. A checkpoint
// that is under way counts if it succeeds, and a batch in hand has failed.
func TestTheEndOfAProgramAbandonsWhatItHasNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan *feed.Batch, 1)
		c := connect(t, feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if got <- b; b.LeaseToken == "in hand" {
				<-ctx.Done()
			}
			return nil
		}), HostOptions{Manual: true}, ProgramOptions{})
		stored, refused := make(chan error, 1), make(chan error, 1)
		answers := map[string]chan error{
			"confirmed": stored, "confirmed late": make(chan error, 1),
			"refused": refused, "refused late": make(chan error, 1),
		}
		stored <- nil
		refused <- feed.ErrHandlerTimeout
		var early, late []string
		outcome := make(chan error, 1)
		for _, name := range []string{"confirmed", "refused", "confirmed late", "refused late", "handled", "in hand"} {
			b := orders()
			b.LeaseToken = name
			b.OnCheckpoint(func(context.Context) error { return <-answers[name] })
			b.OnAbandon(func() {
				select {
				case <-c.Done():
					late = append(late, name)
				default:
					early = append(early, name)
				}
			})
			go func() { outcome <- c.Handle(t.Context(), b) }()
			received := <-got
			if synctest.Wait(); answers[name] != nil {
				go func() { _ = received.Checkpoint(t.Context()) }()
				synctest.Wait()
			}
			if name != "in hand" {
				if err := <-outcome; err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		c.cut()
		if err := <-outcome; err == nil {
			t.Error("the batch in hand has not failed")
		}
		answers["confirmed late"] <- nil
		answers["refused late"] <- feed.ErrLeaseLost
		c.Wait()
		if want := []string{"refused", "handled"}; !slices.Equal(early, want) {
			t.Errorf("abandoned at the end: %v, want %v", early, want)
		}
		if want := []string{"refused late"}; !slices.Equal(late, want) {
			t.Errorf("abandoned afterwards: %v, want %v", late, want)
		}
		<-c.served
	})
}

// A handler in a program abandons nothing: it ends.
func TestAHandlerInAProgramCannotAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error { return b.Abandon() }),
			HostOptions{Manual: true}, ProgramOptions{})
		b := orders()
		b.OnCheckpoint(func(context.Context) error { return nil })
		if err := c.Handle(t.Context(), b); err == nil || err.Error() != feed.ErrNotManual.Error() {
			t.Errorf("got %v, want %v", err, feed.ErrNotManual)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}
