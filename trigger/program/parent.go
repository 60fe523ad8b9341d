package program

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
)

// A Parent is a [feed.Handler] whose program has started this process and speaks the contract of package contract over
// the pipes of this process. So a library for another language makes a processor of its own process: it starts
// `changefeed run --stdio`, and its user's handler stays where it is.
//
// A Parent cannot kill its program. If the program does not give up a batch of a lost lease, the processor reports a
// stuck handler, and the epoch of the lease keeps the position safe.
type Parent struct {
	inHand

	host *contract.Host
	log  *slog.Logger
	stop func()
}

// Attach makes a Parent of the pipes of this process: it waits for the hello of the program until ctx ends. The options
// Grace, Expiration, Start, Stdout and Wire are not used. If the program closes its end, or asks for the end of the
// processor, o.Stop is called.
func Attach(ctx context.Context, r io.Reader, w io.WriteCloser, o WorkerOptions) (*Parent, error) {
	settings := hostOptions(o)
	settings.Patience = nil
	host, err := contract.Connect(ctx, r, w, settings)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { host.Stop(o.Drain) })
	return &Parent{host: host, log: o.Log, stop: o.Stop}, nil
}

// Gone returns a channel that is closed when the program has closed its end, and Err says why.
func (p *Parent) Gone() <-chan struct{} { return p.host.Done() }

// Err returns why the connection has ended; nil before.
func (p *Parent) Err() error { return p.host.Err() }

// Handle hands a batch to the program and returns the outcome that the program reports.
func (p *Parent) Handle(ctx context.Context, b *feed.Batch) error {
	p.count(b.LeaseToken, +1)
	defer p.count(b.LeaseToken, -1)
	err := p.host.Handle(ctx, b)
	if ended := p.host.Err(); ended != nil && errors.Is(err, ended) {
		err = &feed.Failure{Outage: true, Err: err} // no change is at fault
	}
	if err != nil && errors.Is(context.Cause(ctx), feed.ErrStopped) {
		p.interrupted(b.LeaseToken)
	}
	return err
}

// Kill ends the connection: batches in hand have failed.
func (p *Parent) Kill() { p.host.Close() }

// Close ends the connection after the last batch.
func (p *Parent) Close() { p.host.Close() }
