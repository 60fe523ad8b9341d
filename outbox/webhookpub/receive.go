package webhookpub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"

	"github.com/millrace/changefeed/internal/cloudevent"
	"github.com/millrace/changefeed/outbox"
)

const (
	structuredType = "application/cloudevents+json"
	// an event may be as large as a document, 2 MB, and grows inside the JSON of the structured mode
	maxBody = 4 << 20
)

// envelope returns a message in the structured mode. The data is the last member, byte for byte.
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

// ErrMalformed: the request or message contains no CloudEvent of an outbox.
var ErrMalformed = cloudevent.ErrMalformed

// Receive reads the event of a request, in either mode. If you pass secrets, Receive accepts only requests that are
// signed with one of them, see [Verify]. Answer 401 to an [ErrSignature] and 400 to an [ErrMalformed]. Receive reads at
// most 4 MB; if the body is larger, the error is an [outbox.ErrTooLarge]: answer 413.
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
		return outbox.Message{}, fmt.Errorf("%w: content type %q: want %s or %s", ErrMalformed,
			r.Header.Get("Content-Type"), outbox.ContentType, structuredType)
	}
	attributes, err := cloudevent.Attributes(r.Header)
	if err != nil {
		return outbox.Message{}, err
	}
	return cloudevent.Message(attributes, body)
}

// open reads the structured mode. Other senders may write the data in base64, and attributes as numbers.
func open(body []byte) (outbox.Message, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return outbox.Message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	data, err := dataOf(members)
	if err != nil {
		return outbox.Message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	attributes := map[string]string{}
	for name, raw := range members {
		if attributes[name], err = attribute(name, raw); err != nil {
			return outbox.Message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return cloudevent.Message(attributes, data)
}

// texts are the attributes that must not be a number or a truth value; extensions may be.
var texts = []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"}

// attribute returns the text of an attribute; null is the empty text.
func attribute(name string, raw json.RawMessage) (text string, err error) {
	switch {
	case raw[0] == '"' || raw[0] == 'n':
		err = json.Unmarshal(raw, &text)
		return text, err
	case raw[0] == '{' || raw[0] == '[' || slices.Contains(texts, name):
		return "", fmt.Errorf("%s is %.100s", name, raw)
	}
	return string(raw), nil
}

// dataOf removes the data from the members and returns it.
func dataOf(members map[string]json.RawMessage) (data []byte, err error) {
	defer delete(members, "data")
	encoded, ok := members["data_base64"]
	if !ok {
		return members["data"], nil
	}
	delete(members, "data_base64")
	if err := json.Unmarshal(encoded, &data); err != nil {
		return nil, fmt.Errorf("data_base64: %w", err)
	}
	if members["data"] != nil || !json.Valid(data) {
		return nil, errors.New("data_base64 is beside data, or is no JSON")
	}
	return data, nil
}
