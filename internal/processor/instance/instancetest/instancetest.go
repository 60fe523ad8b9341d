// Package instancetest makes an instance for the tests of the parts of a processor.
package instancetest

import (
	"context"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// Idle returns an instance that does nothing by itself. Unset times have the defaults of the processor, and the hooks
// do nothing.
func Idle(ctx context.Context, store feed.LeaseStore, o instance.Options) *instance.Instance {
	o.Instance, o.Acquire, o.Renew, o.Expiration, o.Drain = "a", 13*time.Second, 17*time.Second, time.Minute,
		10*time.Second
	o.RetryMin, o.RetryMax, o.HandlerTimeout, o.Poll = 100*time.Millisecond, 30*time.Second, 10*time.Minute,
		5*time.Second
	return instance.New(ctx, Counted{}, store, nil, o, feed.Hooks{})
}

// Counted is a source whose tokens are LSNs in quotes.
type Counted struct{ feed.Source }

// TokenLSN implements [feed.Sequencer].
func (Counted) TokenLSN(token string) (lsn int64, ok bool) { return service.LSN(token) }

// TokenAfter implements [feed.Sequencer].
func (Counted) TokenAfter(lsn int64) string { return service.Token(lsn) }
