// Package rabbitpub publishes events of an outbox to RabbitMQ, over AMQP 0.9.1.
//
//	p, err := rabbitpub.New("amqps://relay:secret@rabbit/shop", "contacts", rabbitpub.Options{})
//	if err != nil {
//		return err
//	}
//	defer p.Close()
//
// A message is persistent and mandatory, and is accepted when the broker has confirmed it. One that no
// queue gets is an error, though the broker confirms that too. Messages of one key are
// sent one after the other, each after the confirmation of the one before; those of different keys at
// the same time.
//
// RabbitMQ does not de-duplicate. After a crash of the relay, and whenever Publish returns an error,
// messages may be in a queue twice, with the same message id, by which a consumer has to recognize
// them.
//
// The routing key is the message's key, which is also in the header key. For order by key with several
// consumers, bind some quorum queues with a single active consumer each (x-single-active-consumer)
// to a consistent-hash exchange (plugin rabbitmq_consistent_hash_exchange), and publish to that. The
// CloudEvents context attributes are headers that begin with cloudEvents: as in AMQP 1.0.
//
// Ids and keys of more than 255 bytes, which do not fit into AMQP 0.9.1, are replaced by a hash
// in the message id and the routing key. The headers have them whole.
package rabbitpub
