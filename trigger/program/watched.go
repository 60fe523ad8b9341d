package program

import (
	"context"
	"errors"

	"github.com/millrace/changefeed/feed"
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
	w.count(b.LeaseToken, +1)
	defer w.count(b.LeaseToken, -1)
	killed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.ctx, func() { cancel(context.Cause(w.ctx)) })()
	err := w.handler.Handle(killed, b)
	if err != nil && errors.Is(context.Cause(ctx), feed.ErrStopped) {
		w.interrupted(b.LeaseToken)
	}
	return err
}

// Kill ends the context of all calls, and of each later one.
func (w *Watched) Kill() { w.kill(feed.ErrStopped) }
