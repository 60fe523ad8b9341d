//go:build brokers

package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/millrace/changefeed/outbox/kafkapub"
)

func openKafka(_ context.Context, address string, _ Settings) (Publisher, error) {
	seeds, topic, _ := strings.Cut(strings.TrimPrefix(address, "kafka:"), "/")
	if seeds == "" || topic == "" {
		return nil, errors.New("want kafka:HOST:PORT/TOPIC, with several brokers separated by commas")
	}
	return kafkapub.New(strings.Split(seeds, ","), topic, kafkapub.Options{})
}
