// Package outbox is the transactional outbox on Azure Cosmos DB: objects and the events that
// they raise are written in one atomic batch, and a relay publishes the events from the change
// feed to a message broker, each at least once and those of an object in order.
//
// An object embeds a [Recorder] and records what happens to it:
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
// A [Unit] of work commits it, on a container of docstore or of Cosmos DB that is partitioned
// by /partitionKey:
//
//	c := &Contact{Name: "Grace"}
//	c.RecordCreated(ContactCreated{c.Name})
//	u := outbox.NewUnit(contacts, outbox.Options{})
//	u.Create(&outbox.Doc[*Contact]{ID: id, PartitionKey: id, Type: "contact", Data: c})
//	err = u.Commit(ctx) // feed.ErrConflict: the object exists
//
// Later it is changed:
//
//	d, err := outbox.Load[*Contact](ctx, contacts, id, "contact", id)
//	d.Data.Rename("Ada")
//	u := outbox.NewUnit(contacts, outbox.Options{})
//	u.Replace(d)
//	err = u.Commit(ctx)
//	if errors.Is(err, outbox.ErrUnknown) { // the store has not answered
//		err = u.Settle(ctx)
//	} // nil: stored; feed.ErrPrecondition: not stored, somebody else was faster
//
// A [Relay] is the handler of a processor on the same container:
//
//	relay, err := outbox.NewRelay(broker, outbox.RelayOptions{Source: "/contacts"})
//	p, err := changefeed.New(contacts, leases, relay, changefeed.Options{
//		OnFailure: changefeed.FailurePolicy{MaxAge: 24 * time.Hour, DeadLetters: letters, HoldKeys: true},
//	})
//	err = p.Run(ctx)
//
// The broker is a [Publisher]: of package natspub (NATS JetStream, also embedded), webhookpub,
// servicebuspub, kafkapub or rabbitpub, or one of your own that package outboxtest proves.
//
// # Documents
//
// An object and its events lie in one logical partition, in the form of the service's article on
// the pattern, so that its .NET sample and this package read each other's:
//
//	{"id":"c1","partitionKey":"c1","type":"contact","data":{…},"ttl":-1,"seq":2,"unit":"…"}
//	{"id":"…","partitionKey":"c1","type":"domainEvent","data":{"id":"…","action":"ContactNameUpdatedEvent",
//	 "createdAt":"…",…},"ttl":864000,"seq":2,"object":"c1","objectType":"contact","unitSeq":1,
//	 "traceparent":"…","tracestate":"…","unit":"…"}
//
// Ours are seq, which counts the events of the object without a gap if the object is always written
// under its ETag, and from 1 again if it is deleted and created anew; object and
// objectType, which say whose event it is; unitSeq, which counts the events of the unit of work in
// the order in which they were recorded; traceparent and tracestate; and unit, by which a unit of work recognizes its own documents
// when an answer was lost.
//
// # What is promised
//
// An event is stored if, and only if, its object's change is. It is published at least once:
// after a crash, or when the broker's answer is lost, again with the same ID, so that a broker
// which drops duplicates, or [Unit.Once] at the consumer, makes it exactly once. Events of one
// partition key are published in the order of their commits, and those of one unit of work in the
// order in which they were recorded, by whatever relay, across crashes, hand-overs and splits.
// If relays of several units publish the events of a container and one of them lets the events
// expire, the others need [RelayOptions.Feed] for that.
//
// An event that is not published within its time to live is lost. A relay that runs warns
// before ([RelayHooks.Expiring]); one that does not run cannot: watch the age of the oldest
// pending change, or store events for ever and let the relay expire them
// ([RelayOptions.ExpireAfter]).
package outbox
