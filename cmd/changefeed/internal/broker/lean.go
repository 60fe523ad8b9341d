//go:build !brokers

package broker

import (
	"context"

	"github.com/millrace/changefeed/outbox"
)

// The clients of these brokers are large, and most users do not need them: see docs/decisions.
var openServiceBus, openKafka, openRabbit opener

// ConsumeServiceBus is nil in this build, in which [Open] refuses the addresses of Service Bus.
var ConsumeServiceBus func(ctx context.Context, address, subscription string,
	handle func(context.Context, outbox.Message) error) error
