package changeline

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// isSystem reports whether a store adds a member to documents.
func isSystem(name string) bool {
	switch name {
	case "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn":
		return true
	}
	return false
}

// WithoutSystem is a document as its writer had it: the members that are not the store's,
// in their order, with the text of their values.
func WithoutSystem(body []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	plain := []byte{'{'}
	for d.More() {
		begin := d.InputOffset()
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		if isSystem(name.(string)) {
			continue
		}
		if len(plain) > 1 {
			plain = append(plain, ',')
		}
		plain = append(plain, bytes.TrimLeft(body[begin:d.InputOffset()], ", \t\r\n")...)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	return append(plain, '}'), nil
}
