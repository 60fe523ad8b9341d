package main

import (
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// processorName is the name of the deployment unit. Relays with the same name share the work.
const processorName = "contact-events-processor"

// newRelay returns a relay, and the options of the processor whose handler is the relay.
func newRelay(to outbox.Publisher, letters feed.LetterBox) (*outbox.Relay, changefeed.Options, error) {
	relay, err := outbox.NewRelay(to, outbox.RelayOptions{Source: "/contacts"})
	if err != nil {
		return nil, changefeed.Options{}, err
	}
	return relay, changefeed.Options{
		Start:     feed.FromBeginning(),
		MinLeases: 4, // so that several relays can share a container with a single partition
		OnFailure: changefeed.FailurePolicy{
			DeadLetters: letters,
			MaxAge:      24 * time.Hour, // then an event is parked; at once if the broker can never accept it
			HoldKeys:    true,           // the later events of its contact wait until the key is released
		},
	}, nil
}

// alone returns options with short leases, for a process whose leases are in a store that no other process can open.
// If such a process was killed, waiting for its leases would be in vain. Short leases cost a write per second, but no
// network traffic.
func alone(o changefeed.Options) changefeed.Options {
	o.Expiration, o.Renew, o.Acquire = 3*time.Second, time.Second, time.Second
	return o
}
