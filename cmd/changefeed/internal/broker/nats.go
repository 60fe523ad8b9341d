package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/millrace/changefeed/outbox/natspub"
)

func openEmbedded(ctx context.Context, address string, s Settings) (Publisher, error) {
	return natspub.Embedded(ctx, strings.TrimPrefix(address, "embedded:"),
		natspub.Options{SyncEvery: s.SyncEvery, Listen: s.Listen})
}

func openNATS(ctx context.Context, address string, _ Settings) (Publisher, error) {
	p, err := natspub.Connect(ctx, address, natspub.Options{})
	if errors.Is(err, nats.ErrNoServers) {
		return nil, fmt.Errorf("%w: want the address of a NATS server that runs", ErrUnreachable)
	}
	if err != nil { // p would be no nil Publisher
		return nil, err
	}
	return p, nil
}
