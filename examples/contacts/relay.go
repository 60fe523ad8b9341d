package main

import (
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// processorName is that of the deployment unit: relays with the same name share the work.
const processorName = "contact-events-processor"

// newRelay makes a relay, and the options of the processor that it is the handler of.
func newRelay(to outbox.Publisher, letters feed.LetterBox) (*outbox.Relay, changefeed.Options, error) {
	relay, err := outbox.NewRelay(to, outbox.RelayOptions{Source: "/contacts"})
	if err != nil {
		return nil, changefeed.Options{}, err
	}
	return relay, changefeed.Options{
		Start:     feed.FromBeginning(),
		MinLeases: 4, // so many relays can share a container that has one partition
		OnFailure: changefeed.FailurePolicy{
			DeadLetters: letters,
			MaxAge:      24 * time.Hour, // after which an event is parked; at once if the broker can never take it
			HoldKeys:    true,           // the later events of its contact wait until it is released
		},
	}, nil
}

// alone has short leases, for a process whose leases are in a store that no other process can open: one that was killed is
// gone for sure, and waiting for it would be for nothing. They cost a write a second, which goes over no network.
func alone(o changefeed.Options) changefeed.Options {
	o.Expiration, o.Renew, o.Acquire = 3*time.Second, time.Second, time.Second
	return o
}
