package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/rawjson"
)

// Decoder makes a message of a change; ok is false for a change that is no event. With an
// error the change is an event that cannot be read: it is parked.
type Decoder func(c *changefeed.Change) (m Message, ok bool, err error)

// EventsOfType decodes events as a [Unit] stores them, and as the .NET sample of the
// transactional outbox does: documents of a type with data that have a member action. Other
// documents and deletes are no events.
func EventsOfType(typ string) Decoder {
	return func(c *changefeed.Change) (Message, bool, error) {
		if c.Op == changefeed.OpDelete || c.Body == nil || rawjson.Text(rawjson.Lookup(c.Body, "type")) != typ {
			return Message{}, false, nil
		}
		m := Message{
			ID: c.ID, Key: keyOf(c), Time: c.Time,
			Data:        rawjson.Lookup(c.Body, "data"),
			TraceParent: rawjson.Text(rawjson.Lookup(c.Body, "traceparent")),
		}
		m.Action = rawjson.Text(rawjson.Lookup(m.Data, "action"))
		if at, err := time.Parse(time.RFC3339Nano, rawjson.Text(rawjson.Lookup(m.Data, "createdAt"))); err == nil {
			m.Time = at
		}
		switch {
		case len(m.Data) == 0:
			return m, true, errNoData
		case m.Action == "":
			return m, true, errNoAction
		}
		if seq := rawjson.Lookup(c.Body, "seq"); seq != nil {
			n, err := strconv.ParseFloat(string(seq), 64) // some write 1.0
			if err != nil || n < 0 || n != math.Trunc(n) || n > 1<<53 {
				return m, true, fmt.Errorf("seq is %.40s: want the number of the event", seq)
			}
			m.Seq = uint64(n)
		}
		return m, true, nil
	}
}

var (
	errNoData   = errors.New("event has no data: want a JSON object")
	errNoAction = errors.New("event has no data.action: want the name of the event")
)

// keyOf is the partition key as messages have it: the text of a key that is one string, and else its JSON.
func keyOf(c *changefeed.Change) string {
	key := []byte(c.PartitionKey)
	if inner, ok := bytes.CutPrefix(key, []byte("[")); ok {
		inner, _ = bytes.CutSuffix(inner, []byte("]"))
		var text string
		if json.Unmarshal(inner, &text) == nil && len(inner) > 0 && inner[0] == '"' {
			return text
		}
	}
	return string(key)
}
