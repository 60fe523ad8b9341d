// Package servicebuspub publishes events of an outbox to a queue or topic of Azure Service Bus.
//
//	p, err := servicebuspub.Open(ctx, "shop.servicebus.windows.net", credential, "contacts", servicebuspub.Options{})
//	if err != nil {
//		return err
//	}
//	defer p.Close()
//
// A message has the event's id as MessageID, the event's key as SessionID and PartitionKey, and the event's action as
// Subject; its body is the event's data. The CloudEvents context attributes are application properties with the prefix
// cloudEvents: (the binary mode of the AMQP binding).
//
// The promises of an outbox need two settings of the entity, which you cannot change after its creation. So [Open]
// refuses an entity without them:
//
//   - Duplicate detection drops a message that is sent again after a crash, within its history: set the history to more
//     than the longest outage of the relay.
//   - Sessions, of the queue or of each subscription of a topic, give a consumer the messages of a key in order.
//
// A [Consumer] reads the events, session by session.
//
// Ids and keys have at most 128 characters, a limit of the service; if an event has a longer id or key, the error is
// Poison. The error is Poison too if a message is larger than the entity accepts: 256 KB, or the limit of a Premium
// namespace.
//
// # Not confirmed with Azure
//
// The tests of this package use a peer of our own, which was written from the AMQP standard and from the messages of
// Microsoft's clients, and which Microsoft's client for JavaScript accepts. They show that messages, batches, sessions
// and errors follow the protocol. Because no test uses Azure, these points are not confirmed:
//
//   - The condition and the text with which the service throttles, and for how long.
//   - The conditions for a message that the service will never accept. This package knows
//     amqp:link:message-size-exceeded, amqp:decode-error, amqp:invalid-field, com.microsoft:argument-error and
//     com.microsoft:argument-out-of-range; after any other condition a message is retried and reported, and not parked.
//   - How many messages the service accepts in one batch (an entity with duplicate detection on a Standard namespace is
//     said to accept 4,500).
//   - Messages of over 1 MB, which Premium accepts one by one if you configure that.
//   - Duplicate detection, sessions and partitioning together: sources differ.
//   - An empty key, which is a session with an empty name here.
package servicebuspub
