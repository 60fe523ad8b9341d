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
	// ID is the event's id, which is the id of its document: the MessageId, or the field by which a broker or a
	// consumer recognizes a duplicate.
	ID string

	// Key is the partition key of the event's document: SessionId and PartitionKey, or the field by which a broker
	// keeps messages in order. If the key is a single string, Key is that text, unless the text begins with a bracket;
	// any other key is JSON, as in [7] or ["a","b"].
	Key string

	// Action names the event, as in ContactCreatedEvent: the subject of a message to Service Bus, and the type of a
	// CloudEvent.
	Action string

	// Source names the origin of the events, as in /contacts: [RelayOptions.Source].
	Source string

	// Object and ObjectType are the id and the type of the object that raised the event; empty if the stored event has
	// none. The id is the subject of a CloudEvent, and the type is its extension attribute objecttype.
	Object, ObjectType string

	// Seq counts the events of the object that raised them, from 1; 0 if the stored event has no number. If a consumer
	// sees a gap, an event is missing.
	Seq uint64

	// UnitSeq counts the events of the unit of work that stored the event, in the order in which they were recorded,
	// from 1; 0 if the stored event has no number. UnitSeq sorts the events of a transaction; no broker receives it.
	UnitSeq int

	// Time is when the event was recorded, or, if that is unknown, when it was committed.
	Time time.Time

	// TraceParent and TraceState are the W3C trace context of the unit of work; empty if there is none.
	TraceParent, TraceState string

	// Data is the event's payload, a JSON value, byte for byte as in the feed.
	Data json.RawMessage
}

// ContentType is the content type of the data of every message.
const ContentType = "application/json"

// CloudEvent yields the context attributes of the message as a CloudEvent 1.0, except for empty attributes. Each
// binding has a prefix for them, such as ce- for HTTP and NATS and ce_ for Kafka, and a place of its own for the
// content type.
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

// TraceContext yields the headers traceparent and tracestate of the message, as W3C Trace Context names them, except
// for empty headers. A publisher sends them beside the attributes of the CloudEvent, because tracing libraries look for
// them there. TraceContext omits values that cannot be a header.
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

// sequence returns the number as a text that sorts in the order of the numbers, as the CloudEvents extension requires.
func (m Message) sequence() string {
	if m.Seq == 0 {
		return ""
	}
	return fmt.Sprintf("%020d", m.Seq)
}
