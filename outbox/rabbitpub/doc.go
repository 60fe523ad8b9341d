// Package rabbitpub publishes events of an outbox to RabbitMQ, over AMQP 0.9.1.
//
//	p, err := rabbitpub.New("amqps://relay:secret@rabbit/shop", "contacts", rabbitpub.Options{})
//	if err != nil {
//		return err
//	}
//	defer p.Close()
//
// A message is persistent and mandatory. A message is accepted when the broker has confirmed it. If no queue receives
// the message, Publish returns an error, although the broker confirms the message. Messages of the same key are sent
// one after the other, each after the confirmation of the previous message; messages of different keys are sent at the
// same time.
//
// RabbitMQ does not de-duplicate. After a crash of the relay, and whenever Publish returns an error, messages may be in
// a queue twice, with the same message id. Your consumer must recognize them by this id.
//
// The routing key is the message's key, which is also in the header key. If you need order by key with several
// consumers, bind some quorum queues with a single active consumer each (x-single-active-consumer) to a consistent-hash
// exchange (plugin rabbitmq_consistent_hash_exchange), and publish to that exchange. The CloudEvents context attributes
// are headers with the prefix cloudEvents: as in AMQP 1.0.
//
// If an id or a key has more than 255 bytes, it does not fit into AMQP 0.9.1. The message id and the routing key then
// contain a hash, and the headers contain the whole text.
package rabbitpub
