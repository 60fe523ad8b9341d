// Package peer is the other end of a Service Bus client, for tests: queues with sessions and
// duplicate detection, in memory, over AMQP 1.0.
//
//	broker := &peer.Broker{RequiresSession: true}
//	err := broker.ServeConn(conn) // until the client closes the connection
//
// It is written from the standard (OASIS amqp-core-complete-v1.0) and from what clients of Service
// Bus send: SASL ANONYMOUS, a token put to $cbs, links to the queue and to its $management. It has
// what senders and session receivers need. It proves how a client speaks, not how Azure answers.
package peer
