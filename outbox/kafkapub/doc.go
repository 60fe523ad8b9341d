// Package kafkapub publishes events of an outbox to Apache Kafka.
//
//	p, err := kafkapub.New([]string{"kafka-1:9092", "kafka-2:9092"}, "contacts", kafkapub.Options{})
//	if err != nil {
//		return err
//	}
//	defer p.Close()
//
// The key of a record is the message's key, the value is the data, and the CloudEvents context attributes are headers
// with the prefix ce_, beside content-type (the binary mode of the Kafka binding). Records of the same key are in the
// same partition, in order, as long as the number of the topic's partitions stays the same: if you add partitions,
// Kafka assigns keys to other partitions.
//
// The producer is idempotent: if an answer was lost and the client repeats the request, nothing is stored twice. The
// producer does not know the records of an earlier producer. So after a crash of the relay, and whenever Publish
// returns an error, messages may be in the topic twice. A consumer recognizes them by their ce_id.
//
// If you want each event in the topic only once, use [ExactlyOnce]: this handler commits the events and the position of
// a batch in one transaction of Kafka.
//
// The size of a message is limited by the client, to 1,000,012 bytes in one batch, and by the topic
// (max.message.bytes). If the topic accepts less, set [kgo.ProducerBatchMaxBytes] to the topic's limit: otherwise a
// batch that is too large for the topic is sent again, message by message.
package kafkapub
