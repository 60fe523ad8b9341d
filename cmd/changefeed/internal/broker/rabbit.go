//go:build brokers

package broker

import (
	"context"
	"errors"
	"net/url"

	"github.com/millrace/changefeed/outbox/rabbitpub"
)

// openRabbit splits the exchange, or the queue of the default exchange, from the address, because amqp does not know
// these parts.
func openRabbit(_ context.Context, address string, _ Settings) (Publisher, error) {
	at, err := url.Parse(address)
	if err != nil {
		// url's error contains the password
		return nil, errors.New("want amqp://USER:PASSWORD@HOST/VHOST?exchange=NAME")
	}
	q := at.Query()
	exchange, queue := q.Get("exchange"), q.Get("queue")
	if (exchange == "") == (queue == "") {
		return nil, errors.New("want ?exchange=NAME, or ?queue=NAME for a queue of the default exchange")
	}
	q.Del("exchange")
	q.Del("queue")
	at.RawQuery = q.Encode()
	return rabbitpub.New(at.String(), exchange, rabbitpub.Options{RoutingKey: queue})
}
