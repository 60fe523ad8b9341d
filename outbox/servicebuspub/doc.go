// Package servicebuspub publishes events of an outbox to a queue or topic of Azure Service Bus.
//
//	p, err := servicebuspub.Open(ctx, "shop.servicebus.windows.net", credential, "contacts", servicebuspub.Options{})
//	if err != nil {
//		return err
//	}
//	defer p.Close()
//
// A message has the event's id as MessageID, its key as SessionID and PartitionKey, and its action
// as Subject; its body is the event's data. The CloudEvents context attributes are application
// properties that begin with cloudEvents: (the binary mode of the AMQP binding).
//
// Two settings of the entity, which cannot be changed once it exists, make the promises of an
// outbox true, so [Open] refuses an entity without them:
//
//   - duplicate detection drops a message that is sent again after a crash, as long as its history
//     reaches back: set that to more than the longest outage of the relay;
//   - sessions, of the queue or of each subscription of a topic, give a consumer the messages of a
//     key in order.
//
// A [Consumer] reads the events again, session by session.
//
// Ids and keys have at most 128 characters, as the service has it; an event with a longer one is
// Poison. So is a message that is larger than the entity takes: 256 KB, or what a Premium
// namespace is set to.
//
// # What only Azure can confirm
//
// This package is tested against a peer of our own, which was written from the AMQP standard and
// from what Microsoft's clients send, and which Microsoft's client for JavaScript accepts. It
// shows that messages, batches, sessions and errors are spoken as in the protocol. Not confirmed
// are, because nothing here is Azure:
//
//   - the condition and the text with which the service throttles, and for how long;
//   - which conditions it has for a message that it will never take. Known here are
//     amqp:link:message-size-exceeded, amqp:decode-error, amqp:invalid-field,
//     com.microsoft:argument-error and com.microsoft:argument-out-of-range; one that is missing is
//     retried and reported, and not parked;
//   - how many messages it takes in one batch (an entity with duplicate detection on a Standard
//     namespace is said to take 4,500);
//   - messages of over 1 MB, which Premium takes one by one when it is set up for them;
//   - duplicate detection, sessions and partitioning together, about which sources differ;
//   - an empty key, which is a session with an empty name here.
package servicebuspub
