// Package broker opens the message broker of an address, for the commands and examples that publish events.
package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/outbox"
)

// Publisher is an open broker.
type Publisher interface {
	outbox.Publisher
	Close() error
}

// Settings are settings that an address does not contain.
type Settings struct {
	// SyncEvery is how often an embedded broker syncs the files; zero means with each message.
	SyncEvery time.Duration
	// Listen is a loopback address at which other programs reach an embedded broker; empty means none.
	Listen string
	// Secret signs the requests to a webhook; empty means the secret of the environment.
	Secret string
	// Warn receives warnings about a broker that is accepted anyway.
	Warn func(text string)
}

// opener opens the broker of an address.
type opener func(ctx context.Context, address string, s Settings) (Publisher, error)

// kind is a kind of broker.
type kind struct {
	scheme string // of its addresses, up to the colon
	form   string // of its addresses; empty for a variant of the previous kind
	what   string
	open   opener // nil if its client is not linked
}

// kinds are in the order of the help.
var kinds = []kind{
	{"embedded", "embedded:DIR", "NATS JetStream in this process, with its files in a directory", openEmbedded},
	{"nats", "nats://HOST:PORT", "NATS JetStream; several servers of a cluster are separated by commas", openNATS},
	{
		"https", "https://HOST/PATH", "CloudEvents by POST, signed with $" + SecretVariable + " if that is set",
		openWebhook,
	},
	{"http", "", "", openWebhook},
	{
		"servicebus", "servicebus:NAMESPACE/ENTITY",
		"Azure Service Bus, a queue or topic with sessions and duplicate detection; this machine's identity, or " +
			"$SERVICEBUS_CONNECTION_STRING", openServiceBus,
	},
	{"kafka", "kafka:HOST:PORT/TOPIC", "Kafka; several brokers are separated by commas", openKafka},
	{
		"amqp", "amqp://USER@HOST/VHOST?exchange=NAME", "RabbitMQ, which does not drop duplicates; or ?queue=NAME",
		openRabbit,
	},
	{"amqps", "", "", openRabbit},
}

// Help lists the forms of addresses.
func Help() string {
	var b strings.Builder
	for _, k := range kinds {
		if k.form != "" {
			fmt.Fprintf(&b, "  %-38s%s\n", k.form, k.what)
		}
	}
	return b.String()
}

// ErrUnreachable is wrapped by the error of a broker that does not answer.
var ErrUnreachable = errors.New("nothing answers there")

// Check refuses an address of no broker. flag is the flag that gave the address.
func Check(flag, address string) error {
	_, err := find(flag, address)
	return err
}

// find returns the opener of an address.
func find(flag, address string) (opener, error) {
	scheme, rest, ok := strings.Cut(address, ":")
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.scheme == scheme })
	if !ok || i < 0 || rest == "" {
		var forms []string
		for _, k := range kinds {
			if k.form != "" {
				forms = append(forms, k.form)
			}
		}
		return nil, usage.Flag(flag, address, strings.Join(forms, ", "))
	}
	if kinds[i].open == nil {
		return nil,
			usage.Error{Err: fmt.Errorf("--%s is %s: this changefeed is built without the client for it: want one "+
				"that is built with it (go install -tags brokers github.com/millrace/changefeed/cmd/changefeed@latest)",
				flag, address)}
	}
	return kinds[i].open, nil
}

// Open opens the broker of an address. flag is the flag that gave the address.
func Open(ctx context.Context, flag, address string, s Settings) (Publisher, error) {
	open, err := find(flag, address)
	if err != nil {
		return nil, err
	}
	p, err := open(ctx, address, s)
	if err != nil {
		return nil, fmt.Errorf("--%s is %s: %w", flag, address, err)
	}
	return p, nil
}
