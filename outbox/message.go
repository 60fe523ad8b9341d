package outbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"
)

// Message is an event on its way to a broker.
type Message struct {
	// ID is the event's id, which is the id of its document: MessageId, or what a broker
	// or a consumer knows a duplicate by.
	ID string

	// Key is the partition key of the event's document: SessionId and PartitionKey, or by
	// which a broker keeps messages in order. A key that is one string is that text, unless the
	// text begins with a bracket; any other key is JSON, as in [7] or ["a","b"].
	Key string

	// Action is what has happened, as in ContactCreatedEvent: the subject of a message to
	// Service Bus, and the type of a CloudEvent.
	Action string

	// Source is where events come from, as in /contacts: [RelayOptions.Source].
	Source string

	// Object and ObjectType are the id and the type of the object that raised the event; empty
	// for an event that was stored without. The id is the subject of a CloudEvent, and the
	// type its extension attribute objecttype.
	Object, ObjectType string

	// Seq counts the events of the object that raised them, from 1; 0 is of an event that was
	// stored without. A consumer that sees a gap misses an event.
	Seq uint64

	// UnitSeq counts the events of the unit of work that stored the event, in the order in which
	// they were recorded, from 1; 0 for an event that was stored without. No broker gets it: it sorts the events
	// of one transaction.
	UnitSeq int

	// Time is when the event was recorded, or else when it was committed.
	Time time.Time

	// TraceParent and TraceState are the W3C trace context of the unit of work; empty without.
	TraceParent, TraceState string

	// Data is the event's payload, a JSON value, byte for byte as the feed has it.
	Data json.RawMessage
}

// ContentType is that of the data of every message.
const ContentType = "application/json"

// CloudEvent gives the context attributes of the message as a CloudEvent 1.0, without those
// that it does not have. Each binding has a prefix for them, such as ce- for HTTP and NATS and
// ce_ for Kafka, and a place of its own for the content type.
func (m Message) CloudEvent() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for _, a := range []struct{ name, value string }{
			{"specversion", "1.0"},
			{"id", m.ID},
			{"source", m.Source},
			{"type", m.Action},
			{"subject", cmp.Or(m.Object, m.Key)},
			{"objecttype", m.ObjectType},
			{"time", m.time()},
			{"partitionkey", m.Key},
			{"sequence", m.sequence()},
			{"traceparent", m.TraceParent},
			{"tracestate", m.TraceState},
		} {
			if a.value != "" && !yield(a.name, a.value) {
				return
			}
		}
	}
}

// TraceContext gives the headers traceparent and tracestate of the message by which W3C Trace Context names them,
// without those that it does not have. A publisher sends them beside the attributes of the CloudEvent, where
// tracing libraries look for them. What no header can be is left out.
func (m Message) TraceContext() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for _, h := range []struct{ name, value string }{{"traceparent", m.TraceParent}, {"tracestate", m.TraceState}} {
			if h.value != "" && isHeaderValue(h.value) && !yield(h.name, h.value) {
				return
			}
		}
	}
}

// isHeaderValue reports whether a text is printable ASCII, without spaces at its ends.
func isHeaderValue(text string) bool {
	isPrintable := func(c rune) bool { return c >= ' ' && c <= '~' }
	return strings.TrimSpace(text) == text && strings.IndexFunc(text, func(c rune) bool { return !isPrintable(c) }) < 0
}

func (m Message) time() string {
	if m.Time.IsZero() {
		return ""
	}
	return m.Time.UTC().Format(time.RFC3339Nano)
}

// sequence is the number in a form whose order is that of its text, as the CloudEvents extension wants it.
func (m Message) sequence() string {
	if m.Seq == 0 {
		return ""
	}
	return fmt.Sprintf("%020d", m.Seq)
}
