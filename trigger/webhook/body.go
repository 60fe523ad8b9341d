package webhook

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// contentType returns the type of the bodies.
func (h *Handler) contentType() string {
	switch h.opts.Form {
	case FormLines:
		return "application/x-ndjson"
	case FormCloudEvents:
		return "application/cloudevents-batch+json"
	}
	return "application/json"
}

// encodeBody returns the body of a batch.
func (h *Handler) encodeBody(b *feed.Batch) ([]byte, error) {
	var body bytes.Buffer
	w := bufio.NewWriter(&body)
	between, end := "\n", ""
	if h.opts.Form != FormLines {
		body.WriteByte('[')
		between, end = ",", "]"
	}
	for i := range b.Changes {
		if i > 0 {
			body.Truncate(body.Len() - len("\n"))
			body.WriteString(between)
		}
		if err := errors.Join(h.writeChange(w, b, &b.Changes[i]), w.Flush()); err != nil {
			return nil, err
		}
	}
	if end != "" && len(b.Changes) > 0 {
		body.Truncate(body.Len() - len("\n"))
	}
	body.WriteString(end)
	return body.Bytes(), nil
}

// writeChange writes a change and a line end.
func (h *Handler) writeChange(w *bufio.Writer, b *feed.Batch, c *feed.Change) error {
	if h.opts.Form != FormCloudEvents {
		return changeline.Form{Meta: h.opts.Meta}.Write(w, b.Range, *c, "")
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(h.eventOf(c)); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}

// event is a change as a CloudEvent: https://github.com/cloudevents/spec, version 1.0.2.
type event struct {
	SpecVersion  string          `json:"specversion"`
	ID           string          `json:"id"`
	Source       string          `json:"source"`
	Type         string          `json:"type"`
	Subject      string          `json:"subject"`
	Time         time.Time       `json:"time"`
	PartitionKey string          `json:"partitionkey"` // of the extension Partitioning
	Sequence     string          `json:"sequence"`     // of the extension Sequence: the LSN
	Expired      bool            `json:"expired,omitempty"`
	ContentType  string          `json:"datacontenttype,omitempty"`
	Data         json.RawMessage `json:"data,omitempty"`
}

// eventOf returns the event of a change.
func (h *Handler) eventOf(c *feed.Change) event {
	e := event{
		SpecVersion: "1.0", ID: changeID(c), Source: h.opts.Source,
		Type: "changefeed." + c.Op.String(), Subject: c.ID, Time: c.Time, PartitionKey: string(c.PartitionKey),
		Sequence: fmt.Sprint(c.LSN), Expired: c.Expired, Data: c.Body,
	}
	if c.Body != nil {
		e.ContentType = "application/json"
	}
	return e
}
