//go:build !brokers

package main

import (
	"context"

	"github.com/millrace/changefeed/outbox"
)

// The clients of these brokers are large, and most users do not need them.
var (
	tagged            map[string]func(ctx context.Context, address string) (publisher, error)
	consumeServiceBus func(ctx context.Context, address, subscription string,
		handle func(context.Context, outbox.Message) error) error
)
