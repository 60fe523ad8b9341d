package outboxtest

import (
	"testing"

	"github.com/millrace/changefeed/outbox"
)

// Broker is a broker under test, without messages at first. Publisher and Received are
// required. The functions of a broker whose time is up are those of t.Cleanup.
type Broker struct {
	// Publisher makes a publisher, another one each time, as after a restart of the relay.
	Publisher func(t *testing.T) outbox.Publisher

	// Received returns all that a consumer gets from the broker, from the first message on.
	// Messages of one key come in the order in which the broker has them. It is not called
	// while the broker is stopped.
	Received func(t *testing.T) []Received

	// Stop puts the broker out of reach: calls in progress lose their connections and new
	// ones find none. What the broker has accepted it keeps. Stop is called while publishers
	// are at work.
	Stop func(t *testing.T)

	// Stall has the broker answer no more, though it is reached.
	Stall func(t *testing.T)

	// Start ends what Stop or Stall began.
	Start func(t *testing.T)

	// Fail has the broker refuse the message with this id once, for a reason that passes.
	Fail func(t *testing.T, id string)

	// Misbehave has other ways, by their names, in which the broker does not accept the message with
	// this id once: it releases or rejects the message, closes the connection in the middle of
	// the call, or answers after the caller has gone, for example. An answer that comes late may
	// be one of a message that the broker has kept.
	Misbehave map[string]func(t *testing.T, id string)

	// MaxData is how many bytes of data the broker takes in one message; twice as many are
	// too large for it. 0 is a broker without a limit.
	MaxData int

	// MaxText is how many characters the broker takes as a key or an id; longer ones are
	// Poison. 0 is a broker that takes as many as the id of a document has.
	MaxText int

	// Deduplicates says that the broker knows the ids of messages, so that one that is
	// published again reaches its consumers once.
	Deduplicates bool
}

// Received is a message as a consumer gets it.
type Received struct {
	ID  string
	Key string

	// Attributes are those of the CloudEvent, decoded, by their names without the prefix of
	// the binding.
	Attributes map[string]string

	// Trace are the headers, or properties, traceparent and tracestate beside the attributes.
	Trace map[string]string

	ContentType string
	Data        []byte
}

// TestPublisher proves the publishers of a broker, which it makes for each case.
func TestPublisher(t *testing.T, broker func(t *testing.T) Broker) {
	for _, c := range []struct {
		name string
		test func(s *suite)
	}{
		{"a message arrives as it is", (*suite).wholeMessages},
		{"attributes that a message lacks are left out", (*suite).bareMessages},
		{"any text can be a key, an id or an action", (*suite).hostileText},
		{"messages of a key keep their order", (*suite).order},
		{"more messages than one request holds", (*suite).manyMessages},
		{"messages that fill several requests", (*suite).largeMessages},
		{"keys are published concurrently", (*suite).concurrentKeys},
		{"a message that is published again", (*suite).duplicates},
		{"a message that is too large", (*suite).tooLarge},
		{"a message that is refused once", (*suite).refusedOnce},
		{"a broker that does not accept in other ways", (*suite).misbehaves},
		{"an ended context", (*suite).endedContext},
		{"a broker that does not answer", (*suite).stalled},
		{"a broker that is out of reach for a while", (*suite).outOfReach},
		{"a broker that goes away in mid-call", (*suite).midCall},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{T: t, Broker: broker(t)}
			c.test(s)
		})
	}
}
