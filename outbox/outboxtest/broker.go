package outboxtest

import (
	"testing"

	"github.com/millrace/changefeed/outbox"
)

// Broker is a broker under test, without messages at first. Publisher and Received are required. The functions may
// clean up with t.Cleanup.
type Broker struct {
	// Publisher makes a new publisher at each call, as after a restart of the relay.
	Publisher func(t *testing.T) outbox.Publisher

	// Received returns all messages for a consumer of the broker, from the first on. Messages of the same key have the
	// order of the broker. Received is not called while the broker is stopped.
	Received func(t *testing.T) []Received

	// Stop makes the broker unreachable: calls in progress lose their connections, and new connections fail. The broker
	// keeps the accepted messages. Stop is called while publishers work.
	Stop func(t *testing.T)

	// Stall makes the broker stop answering, although clients can still connect.
	Stall func(t *testing.T)

	// Start ends Stop or Stall.
	Start func(t *testing.T)

	// Fail makes the broker refuse the message with this id once, for a temporary reason.
	Fail func(t *testing.T, id string)

	// Misbehave contains other ways, by their names, in which the broker does not accept the message with this id once:
	// for example, the broker releases or rejects the message, closes the connection in the middle of the call, or
	// answers after the caller has gone. If an answer is late, the broker may have kept the message.
	Misbehave map[string]func(t *testing.T, id string)

	// MaxData is how many bytes of data the broker accepts in a message; twice as many are too large. 0 is no limit.
	MaxData int

	// MaxText is how many characters the broker accepts as a key or an id; longer ones are Poison. 0 means that the
	// broker accepts as many characters as the id of a document may have.
	MaxText int

	// Deduplicates says that the broker recognizes the ids of messages. Consumers then receive a republished message
	// once.
	Deduplicates bool
}

// Received is a message in the form for a consumer.
type Received struct {
	ID  string
	Key string

	// Attributes are the attributes of the CloudEvent, decoded, by their names without the prefix of the binding.
	Attributes map[string]string

	// Trace contains the headers, or properties, traceparent and tracestate beside the attributes.
	Trace map[string]string

	ContentType string
	Data        []byte
}

// TestPublisher proves the publishers of a broker; each case makes its own broker.
func TestPublisher(t *testing.T, broker func(t *testing.T) Broker) {
	for _, c := range []struct {
		name string
		test func(s *suite)
	}{
		{"a message arrives as it is", (*suite).wholeMessages},
		{"attributes that a message lacks are left out", (*suite).bareMessages},
		{"any text can be a key, an id or an action", (*suite).hostileText},
		{"messages of a key keep their order", (*suite).publishInOrder},
		{"more messages than one request holds", (*suite).manyMessages},
		{"messages that fill several requests", (*suite).largeMessages},
		{"keys are published concurrently", (*suite).concurrentKeys},
		{"a message that is published again", (*suite).publishTwice},
		{"a message that is too large", (*suite).tooLarge},
		{"a message that is refused once", (*suite).refusedOnce},
		{"a broker that does not accept in other ways", (*suite).publishToMisbehaving},
		{"an ended context", (*suite).endedContext},
		{"a broker that does not answer", (*suite).publishToStalled},
		{"a broker that is out of reach for a while", (*suite).outOfReach},
		{"a broker that goes away in mid-call", (*suite).midCall},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &suite{T: t, Broker: broker(t)}
			c.test(s)
		})
	}
}
