package webhookpub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"

	"github.com/millrace/changefeed/internal/cloudevent"
	"github.com/millrace/changefeed/outbox"
)

const (
	structuredType = "application/cloudevents+json"
	maxBody        = 4 << 20 // an event may be as large as a document, which is 2 MB, and is longer as JSON in JSON
)

// envelope is a message in the structured mode. The data is the last member, as the bytes that it is.
func envelope(m *outbox.Message) ([]byte, error) {
	if !json.Valid(m.Data) {
		return nil, fmt.Errorf("%w: its data is not JSON", ErrMalformed)
	}
	attributes := map[string]string{"datacontenttype": outbox.ContentType}
	maps.Insert(attributes, m.CloudEvent())
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(attributes); err != nil {
		return nil, err
	}
	text.Truncate(text.Len() - len("}\n"))
	text.WriteString(`,"data":`)
	text.Write(m.Data)
	text.WriteByte('}')
	return text.Bytes(), nil
}

// ErrMalformed: what came is no CloudEvent of an outbox.
var ErrMalformed = cloudevent.ErrMalformed

// Receive reads the event of a request, in either mode. With secrets it accepts only what was signed with one of
// them, see [Verify]; answer 401 to an [ErrSignature] and 400 to an [ErrMalformed]. It reads at most 4 MB: more is an
// [outbox.ErrTooLarge], to which 413 is the answer.
func Receive(r *http.Request, secrets ...[]byte) (outbox.Message, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return outbox.Message{}, err
	}
	if len(body) > maxBody {
		return outbox.Message{}, outbox.ErrTooLarge
	}
	if len(secrets) > 0 {
		if err := Verify(r.Header, body, secrets...); err != nil {
			return outbox.Message{}, err
		}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == structuredType:
		return open(body)
	case err != nil || kind != outbox.ContentType:
		return outbox.Message{}, fmt.Errorf("%w: content type %q: want %s or %s", ErrMalformed, r.Header.Get("Content-Type"), outbox.ContentType, structuredType)
	}
	attributes, err := cloudevent.Attributes(r.Header)
	if err != nil {
		return outbox.Message{}, err
	}
	return cloudevent.Message(attributes, body)
}

// open reads the structured mode.
func open(body []byte) (outbox.Message, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return outbox.Message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	attributes := map[string]string{}
	for name, raw := range members {
		if name == "data" {
			continue
		}
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return outbox.Message{}, fmt.Errorf("%w: %s: %w", ErrMalformed, name, err)
		}
		attributes[name] = value
	}
	return cloudevent.Message(attributes, members["data"])
}
