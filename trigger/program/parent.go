package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inhand"
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
	news

	host *contract.Host
}

// Attach makes a Parent of the pipes of this process, after the program has said hello. When ctx ends, the program is
// told that no further batch comes. When the connection has ended, o.Stop is called. The options Grace, Expiration,
// Stdout and Wire are not used.
func Attach(ctx context.Context, r io.Reader, w io.WriteCloser, o WorkerOptions) (*Parent, error) {
	o.Start, o.Log = cmp.Or(o.Start, DefaultStart), cmp.Or(o.Log, slog.Default())
	settings := hostOptions(o)
	settings.Patience, settings.Ended = nil, o.Stop
	starting, cancel := context.WithTimeoutCause(ctx, o.Start, fmt.Errorf("not within %v", o.Start))
	defer cancel()
	host, err := contract.Connect(starting, r, w, settings)
	if err != nil {
		host.AwaitWritten(toldTime) // the hello, and how the program has broken the contract
		return nil, err
	}
	context.AfterFunc(ctx, func() { host.Stop(o.Drain) })
	p := &Parent{host: host, news: news{hint: o.Hint}}
	p.greet(host)
	return p, nil
}

// OffersTokens reports whether the hello of the program offers tokens.
func (p *Parent) OffersTokens() bool { return p.host.OffersTokens() }

// Token asks the program for a token of a scope.
func (p *Parent) Token(ctx context.Context, scope string) (contract.Token, error) {
	return p.host.Token(ctx, scope)
}

// Fail tells a program that wants events why the processor has ended, and ends the connection as Close does. See
// [contract.Host.Fail].
func (p *Parent) Fail(text, code, reason, hint string) {
	p.host.Stop(0)
	p.host.Fail(text, code, reason, hint)
	p.host.AwaitWritten(toldTime)
}

// Err returns why the connection has ended: the program has closed its end or broken the contract. It is nil before.
func (p *Parent) Err() error { return p.host.Err() }

// Handle hands a batch to the program and returns the outcome that the program reports.
func (p *Parent) Handle(ctx context.Context, b *feed.Batch) error {
	inhand.Count(&p.inHand, b.LeaseToken, +1)
	defer inhand.Count(&p.inHand, b.LeaseToken, -1)
	err := p.host.Handle(ctx, b)
	if ended := p.host.Err(); ended != nil && errors.Is(err, ended) {
		err = &feed.Failure{Outage: true, Err: err} // no change is at fault
	}
	if err != nil && errors.Is(context.Cause(ctx), feed.ErrStopped) {
		inhand.Interrupt(&p.inHand, b.LeaseToken)
	}
	return err
}

// Kill ends the connection: batches in hand have failed.
func (p *Parent) Kill() { p.host.Close() }

// Close ends the connection after the last batch. The process may exit when Close has returned.
func (p *Parent) Close() {
	p.host.Stop(0)
	p.host.Close()
	p.host.AwaitWritten(toldTime)
}
