package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Decoder makes a message from a change; ok is false if the change is no event. If the Decoder returns an error, or a
// message without an ID, the change is an event that cannot be published, and is parked.
type Decoder func(c *feed.Change) (m Message, ok bool, err error)

// EventsOfType decodes the events that a [Unit] or the .NET sample of the transactional outbox stores: documents of
// type typ whose data has a member action. Other documents and deletes are no events.
func EventsOfType(typ string) Decoder {
	return func(c *feed.Change) (Message, bool, error) {
		var d stored
		if c.Op != feed.OpDelete {
			d = read(c.Body)
		}
		if rawjson.Text(d.typ) != typ {
			return Message{}, false, nil
		}
		m := Message{
			ID: c.ID, Key: keyOf(c), Time: c.Time, Data: d.data, Object: rawjson.Text(d.object),
			ObjectType:  rawjson.Text(d.objectType),
			TraceParent: rawjson.Text(d.traceparent), TraceState: rawjson.Text(d.tracestate),
		}
		m.Action = rawjson.Text(d.action)
		m.UnitSeq, _ = strconv.Atoi(string(d.unitSeq))
		if at, err := time.Parse(time.RFC3339Nano, rawjson.Text(d.createdAt)); err == nil {
			m.Time = at
		}
		switch {
		case len(m.Data) == 0:
			return m, true, errNoData
		case m.Action == "":
			return m, true, errNoAction
		}
		if d.seq != nil {
			n, err := strconv.ParseFloat(string(d.seq), 64) // some writers write 1.0
			if err != nil || n < 0 || n != math.Trunc(n) || n > 1<<53 {
				return m, true, fmt.Errorf("seq is %.40s: want the number of the event", d.seq)
			}
			m.Seq = uint64(n)
		}
		return m, true, nil
	}
}

// stored are the raw members of a document that make an event.
type stored struct{ typ, data, seq, unitSeq, object, objectType, traceparent, tracestate, action, createdAt []byte }

// read finds the members in a pass over the document, and a pass over the data.
func read(body []byte) (d stored) {
	for name, value := range rawjson.Members(body) {
		switch {
		case name.Is("type"):
			d.typ = value
		case name.Is("data"):
			d.data = value
		case name.Is("seq"):
			d.seq = value
		case name.Is("unitSeq"):
			d.unitSeq = value
		case name.Is("object"):
			d.object = value
		case name.Is("objectType"):
			d.objectType = value
		case name.Is("traceparent"):
			d.traceparent = value
		case name.Is("tracestate"):
			d.tracestate = value
		}
	}
	for name, value := range rawjson.Members(d.data) {
		switch {
		case name.Is("action"):
			d.action = value
		case name.Is("createdAt"):
			d.createdAt = value
		}
	}
	return d
}

var (
	errNoData   = errors.New("event has no data: want a JSON object")
	errNoAction = errors.New("event has no data.action: want the name of the event")
)

// keyOf returns the partition key in the form of messages: the text of a single string, and the JSON of any other key.
// A text with a leading bracket could be the JSON of another key, so such a key stays JSON too.
func keyOf(c *feed.Change) string {
	key := []byte(c.PartitionKey)
	if inner, ok := bytes.CutPrefix(key, []byte("[")); ok {
		inner, _ = bytes.CutSuffix(inner, []byte("]"))
		var text string
		if json.Unmarshal(inner, &text) == nil && len(inner) > 0 && inner[0] == '"' && !strings.HasPrefix(text, "[") {
			return text
		}
	}
	return string(key)
}
