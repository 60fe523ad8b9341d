//go:build !brokers

package broker

import (
	"context"

	"github.com/millrace/changefeed/outbox"
)

// The clients of these brokers are large, and most users need none of them: see docs/decisions.
var openServiceBus, openKafka, openRabbit opener

// ConsumeServiceBus is nil here, where [Open] refuses the addresses that it reads.
var ConsumeServiceBus func(ctx context.Context, address, subscription string, handle func(context.Context, outbox.Message) error) error
