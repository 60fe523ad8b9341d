package program

import (
	"context"
	"errors"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inhand"
)

// Watched is a handler that knows the leases of its batches, as a [Handler] and a [Worker] do.
type Watched struct {
	inHand

	handler feed.Handler
	ctx     context.Context
	kill    context.CancelCauseFunc
}

// Watch makes a handler that knows the leases of its batches. The end of ctx changes nothing: batches in hand go on.
func Watch(ctx context.Context, handler feed.Handler) *Watched {
	ctx, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	return &Watched{handler: handler, ctx: ctx, kill: kill}
}

// Handle calls the handler.
func (w *Watched) Handle(ctx context.Context, b *feed.Batch) error {
	inhand.Count(&w.inHand, b.LeaseToken, +1)
	defer inhand.Count(&w.inHand, b.LeaseToken, -1)
	killed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.ctx, func() { cancel(context.Cause(w.ctx)) })()
	err := w.handler.Handle(killed, b)
	if err != nil && errors.Is(context.Cause(ctx), feed.ErrStopped) {
		inhand.Interrupt(&w.inHand, b.LeaseToken)
	}
	return err
}

// Kill ends the context of all calls, and of each later one.
func (w *Watched) Kill() { w.kill(feed.ErrStopped) }

// inHand is what the handlers of this package embed, so that the field has a name of the package.
type inHand = inhand.Leases
