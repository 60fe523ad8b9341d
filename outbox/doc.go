// Package outbox is the transactional outbox on Azure Cosmos DB. Your program writes objects and the events that they
// raise in one atomic batch. A relay publishes the events from the change feed to a message broker: each event at least
// once, and the events of an object in order.
//
// An object embeds a [Recorder] and records its events:
//
//	type Contact struct {
//		outbox.Recorder
//		Name string `json:"name"`
//	}
//
//	type ContactNameUpdated struct{ Name string `json:"name"` }
//
//	func (ContactNameUpdated) EventName() string { return "ContactNameUpdatedEvent" }
//
//	func (c *Contact) Rename(to string) {
//		c.Name = to
//		c.Record(ContactNameUpdated{to})
//	}
//
// A [Unit] of work commits the object, on a container of docstore or of Cosmos DB partitioned by /partitionKey:
//
//	c := &Contact{Name: "Grace"}
//	c.RecordCreated(ContactCreated{c.Name})
//	u := outbox.NewUnit(contacts, outbox.Options{})
//	u.Create(&outbox.Doc[*Contact]{ID: id, PartitionKey: id, Type: "contact", Data: c})
//	err = u.Commit(ctx) // feed.ErrConflict: the object exists
//
// Later you change the object:
//
//	d, err := outbox.Load[*Contact](ctx, contacts, id, "contact", id)
//	d.Data.Rename("Ada")
//	u := outbox.NewUnit(contacts, outbox.Options{})
//	u.Replace(d)
//	err = u.Commit(ctx)
//	if errors.Is(err, outbox.ErrUnknown) { // the store has not answered
//		err = u.Settle(ctx)
//	} // nil: stored; feed.ErrPrecondition: not stored, another writer was faster
//
// A [Relay] is the handler of a processor on the same container:
//
//	relay, err := outbox.NewRelay(broker, outbox.RelayOptions{Source: "/contacts"})
//	p, err := changefeed.New(contacts, leases, relay, changefeed.Options{
//		OnFailure: changefeed.FailurePolicy{MaxAge: 24 * time.Hour, DeadLetters: letters, HoldKeys: true},
//	})
//	err = p.Run(ctx)
//
// The broker is a [Publisher]: take one of package natspub (NATS JetStream, also embedded), webhookpub, servicebuspub,
// kafkapub or rabbitpub, or write your own and prove it with package outboxtest.
//
// # Documents
//
// An object and its events lie in the same logical partition. Their form is the form of the service's article on the
// pattern, so that its .NET sample and this package can read each other's documents:
//
//	{"id":"c1","partitionKey":"c1","type":"contact","data":{…},"ttl":-1,"seq":2,"unit":"…"}
//	{"id":"…","partitionKey":"c1","type":"domainEvent","data":{"id":"…","action":"ContactNameUpdatedEvent",
//	 "createdAt":"…",…},"ttl":864000,"seq":2,"object":"c1","objectType":"contact","unitSeq":1,
//	 "traceparent":"…","tracestate":"…","unit":"…"}
//
// This package adds these members:
//
//   - seq counts the events of the object, without a gap if you always write the object under its ETag. If you delete
//     the object and create it anew, seq starts again from 1.
//   - object and objectType name the object that raised the event.
//   - unitSeq counts the events of the unit of work in the order in which they were recorded.
//   - traceparent and tracestate are the trace context.
//   - unit is the number by which a unit of work recognizes its own documents when an answer was lost.
//
// # Promises
//
// An event is stored if, and only if, the change of its object is stored. An event is published at least once: after a
// crash, or when the broker's answer is lost, the relay publishes the event again with the same ID. If your broker
// drops duplicates, or your consumer uses [Unit.Once], each event has its effect exactly once. Events of the same
// partition key are published in the order of their commits, and events of the same unit of work in the order in which
// they were recorded. This order holds for every relay, across crashes, hand-overs and splits. If relays of several
// units publish the events of a container and one of the relays lets the events expire, set [RelayOptions.Feed] for the
// others.
//
// An event that is not published within its time to live is lost. A running relay warns before ([RelayHooks.Expiring]).
// If no relay runs, no relay can warn: watch the age of the oldest pending change, or store events for ever and let the
// relay expire them ([RelayOptions.ExpireAfter]).
package outbox
