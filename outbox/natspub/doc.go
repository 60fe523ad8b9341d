// Package natspub publishes the events of an outbox to NATS JetStream: to a server in this process
// with its files in a directory, which is all that a single machine needs, or to a server elsewhere.
//
//	to, err := natspub.Embedded(ctx, "data/nats", natspub.Options{})
//	to, err := natspub.Connect(ctx, "nats://nats.example.com", natspub.Options{})
//
// # Messages
//
// An event becomes a message of the stream, [Options].Stream, on the subject that
// [Options.Subject] gives its partition key. Its id is Nats-Msg-Id, by which the server knows an
// event that is published again, within [Options].Window and across restarts; ids must be unique
// among all keys, as those that an outbox draws are. The attributes of the CloudEvent are headers
// such as ce-type, escaped as in the HTTP binding, with ce-datacontenttype among them; the
// payload is the data, byte for byte. [Message] is the way back.
//
// # Order
//
// The stream has the events of a key in their order. So each waits for the answer to the one
// before it: JetStream goes on after a message that it could not store, and a connection that
// breaks may lose one message and deliver the next, so that of two under way the second could
// come first. Different keys do not wait for each other; their messages share a connection.
//
// # Durability
//
// By default an embedded server syncs each message to the disk before it acknowledges it, as the
// rest of an outbox does: an event that is acknowledged counts as published, and nobody would
// publish it again. With [Options].SyncEvery it syncs from time to time, and a power failure
// loses what was acknowledged since; a crash of the process, or its kill, loses nothing either
// way. How a server elsewhere syncs is in its configuration, sync_interval.
//
// Events of 400 bytes a second, on two cores and a disk that syncs 5,000 times a second:
//
//	                      synced each    synced every 2 minutes
//	keys one at a time          5,000                    30,000
//	64 keys at a time           5,000                    60,000
//
// # Consumers
//
// A durable consumer with one message under way has each event handled, in order, at least once:
// see the example of [Publisher.Conn]. To handle keys in parallel, give each of several such
// consumers a part of the subjects, by a subject transform with {{partition(n,1)}}.
package natspub
