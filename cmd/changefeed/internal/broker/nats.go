package broker

import (
	"context"
	"strings"

	"github.com/millrace/changefeed/outbox/natspub"
)

func openEmbedded(ctx context.Context, address string, s Settings) (Publisher, error) {
	return natspub.Embedded(ctx, strings.TrimPrefix(address, "embedded:"),
		natspub.Options{SyncEvery: s.SyncEvery, Listen: s.Listen})
}

func openNATS(ctx context.Context, address string, _ Settings) (Publisher, error) {
	return natspub.Connect(ctx, address, natspub.Options{})
}
