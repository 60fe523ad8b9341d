// Package peer is the other end of a Service Bus client, for tests: queues with sessions and
// duplicate detection, in memory, over AMQP 1.0.
//
//	broker := &peer.Broker{RequiresSession: true}
//	err := broker.ServeConn(conn) // until the client closes the connection
//
// It is written from the standard (OASIS amqp-core-complete-v1.0) and from the messages of Service Bus clients: SASL
// ANONYMOUS, a token put to $cbs, links to the queue and to its $management. The peer supports senders and session
// receivers. It shows that a client follows the protocol, not how Azure answers.
package peer
