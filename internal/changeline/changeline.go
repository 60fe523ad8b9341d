// Package changeline writes changes as lines of JSON: the form in which changefeed tail prints them and programs that
// handle batches read them.
package changeline

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Form is the form of a line. Its zero value writes the document alone.
type Form struct {
	// an object with the document and the rest of the change, because the document does not say, for one, its LSN
	Meta bool
	// Prefix is an object whose members come first in the lines of Meta, such as the kind; empty for none
	Prefix []byte
}

// described is a change with everything that is known of it.
type described struct {
	LSN         int64           `json:"lsn"`
	Time        time.Time       `json:"time"`
	Op          string          `json:"op"`
	ID          string          `json:"id"`
	Key         json.RawMessage `json:"key"`
	Range       string          `json:"range"`
	Expired     bool            `json:"expired,omitempty"`
	Document    json.RawMessage `json:"document,omitempty"`
	Previous    json.RawMessage `json:"previous,omitempty"`
	PreviousLSN int64           `json:"previous_lsn,omitempty"`
	Next        string          `json:"next,omitempty"`
}

// Write writes a change of a range and, unless it is empty, the position after it.
func (f Form) Write(w *bufio.Writer, r feed.Range, c feed.Change, next string) error {
	if !f.Meta {
		return WriteDocument(w, c.Body)
	}
	dst := w.AvailableBuffer()
	if len(f.Prefix) > 0 {
		dst = append(append(dst, f.Prefix...), ',')
	}
	begin := len(dst)
	dst, err := Append(dst, r, &c, next)
	if err != nil {
		return err
	}
	if begin > 0 {
		dst = slices.Delete(dst, begin, begin+1) // its brace, because the prefix has one
	}
	_, err = w.Write(append(dst, '\n'))
	return err
}

// Parse returns the change of a line of Meta. The line has no ETag, so the change has none.
func Parse(line []byte) (feed.Change, error) {
	var d described
	if err := json.Unmarshal(line, &d); err != nil {
		return feed.Change{}, fmt.Errorf("parse change: %w", err)
	}
	c := feed.Change{
		ID: d.ID, PartitionKey: feed.PartitionKey(d.Key), LSN: d.LSN, Time: d.Time, Expired: d.Expired,
		Body: d.Document, Previous: d.Previous, PreviousLSN: d.PreviousLSN,
	}
	for c.Op = feed.OpUpsert; c.Op.String() != d.Op; c.Op++ {
		if c.Op == feed.OpDelete {
			return feed.Change{}, fmt.Errorf("parse change: op is %q: want upsert, create, replace or delete", d.Op)
		}
	}
	return c, nil
}

// WriteDocument writes JSON on a line of its own.
func WriteDocument(w *bufio.Writer, text json.RawMessage) error {
	if bytes.ContainsAny(text, "\r\n") { // stores keep the space that a document came with
		var flat bytes.Buffer
		if err := json.Compact(&flat, text); err != nil {
			return fmt.Errorf("write document: %w", err)
		}
		text = flat.Bytes()
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.WriteByte('\n')
}
