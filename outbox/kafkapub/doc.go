// Package kafkapub publishes events of an outbox to Apache Kafka.
//
//	p, err := kafkapub.New([]string{"kafka-1:9092", "kafka-2:9092"}, "contacts", kafkapub.Options{})
//	if err != nil {
//		return err
//	}
//	defer p.Close()
//
// A record has the message's key as its key, its data as its value, and the CloudEvents context
// attributes as headers that begin with ce_, beside content-type (the binary mode of the Kafka
// binding). Records of one key are in one partition, in order, for as long as the topic has as
// many partitions as now: Kafka places keys anew when partitions are added.
//
// The producer is idempotent: a request that the client repeats because its answer was lost
// stores nothing twice. It does not know what an earlier producer has sent. So after a crash of
// the relay, and whenever Publish returns an error, messages may be in the topic twice, under the
// same ce_id, by which a consumer recognizes them.
//
// [ExactlyOnce] is for those who want each event in the topic once: a handler that commits the events of
// a batch and how far it has come in one transaction of Kafka.
//
// The largest message is what the client takes in one batch, 1,000,012 bytes, and the topic
// (max.message.bytes). Where the topic takes less, set [kgo.ProducerBatchMaxBytes] to its limit:
// a batch that is too large for it is otherwise sent again, message by message.
package kafkapub
