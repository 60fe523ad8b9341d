// Package natspub publishes the events of an outbox to NATS JetStream: to a server in this process with files in a
// directory, which suffices for a single machine, or to an external server.
//
//	to, err := natspub.Embedded(ctx, "data/nats", natspub.Options{})
//	to, err := natspub.Connect(ctx, "nats://nats.example.com", natspub.Options{})
//
// # Messages
//
// An event becomes a message of the stream, [Options].Stream, on the subject that [Options.Subject] makes of the
// partition key. The event's id is Nats-Msg-Id. By this id the server recognizes a republished event, within
// [Options].Window and across restarts. Ids must be unique among all keys, as the ids of an outbox are. The attributes
// of the CloudEvent are headers such as ce-type, escaped as in the HTTP binding, with ce-datacontenttype among them;
// the payload is the data, byte for byte. [Message] converts a message back to the event.
//
// # Order
//
// The stream has the events of a key in their order. To keep this order, each event waits for the answer to the
// previous event: JetStream goes on after a failed store of a message, and a broken connection may lose one message and
// deliver the next, so that the second of two concurrent messages could arrive first. Different keys do not wait for
// each other; their messages share a connection.
//
// # Durability
//
// By default an embedded server syncs each message to the disk before the acknowledgement, like the rest of an outbox:
// an acknowledged event counts as published, and no relay would publish the event again. If you set
// [Options].SyncEvery, the server syncs from time to time, and a power failure loses the messages that were
// acknowledged since the last sync. A crash or kill of the process loses nothing in either case. An external server
// syncs according to the configuration, sync_interval.
//
// Events of 400 bytes a second, on two cores and a disk that syncs 5,000 times a second:
//
//	                      synced each    synced every 2 minutes
//	keys one at a time          5,000                    30,000
//	64 keys at a time           5,000                    60,000
//
// # Consumers
//
// If a durable consumer has a single unacknowledged message at a time, the consumer handles each event, in order, at
// least once: see the example of [Publisher.Conn]. To handle keys in parallel, use several such consumers and give each
// a part of the subjects, by a subject transform with {{partition(n,1)}}.
package natspub
