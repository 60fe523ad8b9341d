//go:build !brokers

package broker

// The clients of these brokers are large, and most users need none of them: see docs/decisions.
var openServiceBus, openKafka, openRabbit opener
