// Package natspub publishes the events of an outbox to NATS JetStream: to a server in this process
// with its files in a directory, which is all that a single machine needs, or to a server elsewhere.
//
//	to, err := natspub.Embedded(ctx, "data/nats", natspub.Options{})
//	to, err := natspub.Connect(ctx, "nats://nats.example.com", natspub.Options{})
//
// # Messages
//
// An event becomes a message of the stream, Options.Stream, on the subject that [Options.Subject] gives its
// partition key. Its id is Nats-Msg-Id, by which the server knows an event that is published
// again, within Options.Window and across restarts; ids have to be unique among all keys, as those
// that an outbox draws are. The attributes of the CloudEvent are headers, as in
// ce-type, escaped as in the HTTP binding, with ce-datacontenttype among them; the payload is the
// data, byte for byte. [Message] is the way back.
//
// # Order
//
// The stream has the events of a key in their order. So each waits for the answer to the one
// before it: JetStream goes on after a message that it could not store, and a connection that
// breaks may lose one message and deliver the next, so of two that are under way the second may be stored first. Keys
// wait for each other nowhere: they share a connection, and requests on it are written together.
//
// # Durability
//
// By default the embedded server syncs each message to the disk before it acknowledges it, as the rest of an outbox
// does: after that the event counts as published, and nobody would publish it again. On the
// machine of the table below that is 5,000 messages a second. With [Options.SyncEvery] the server syncs from
// time to time: fifteen times as many, and what was acknowledged since the last sync is lost to a power failure,
// though not to a crash of the process. How a server elsewhere syncs is in its configuration (sync_interval).
//
// # Consumers
//
// A durable consumer with one message under way has each event handled, in order, at least once: see the
// example of [Publisher.Conn]. Where keys shall be handled in parallel, give each of several
// consumers a part of the subjects, by a subject transform with {{partition(n,1)}}.
package natspub
