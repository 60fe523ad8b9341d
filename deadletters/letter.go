package deadletters

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// A letter is the same JSON object everywhere. The documents stand last, each in any of three forms. If a document is
// JSON on a single line and acceptable for stores, the letter contains the document unchanged. Otherwise the letter
// contains the document in base64, because the bytes must not change. A document that is too large for a container is
// compressed.

// letter is a letter without the documents, which follow separately.
type letter struct {
	ID          string           `json:"id"`
	Version     int              `json:"version"` // of the form; missing in letters from before 0.1
	Key         json.RawMessage  `json:"key"`
	Disposition feed.Disposition `json:"disposition"`
	Cause       string           `json:"cause,omitempty"`
	Stack       string           `json:"stack,omitempty"`
	Attempts    int              `json:"attempts"`
	Processor   string           `json:"processor"`
	Source      string           `json:"source,omitempty"` // DATABASE/CONTAINER, in a container
	Instance    string           `json:"instance,omitempty"`
	Lease       string           `json:"lease,omitempty"`
	Range       string           `json:"range"`
	LSN         int64            `json:"lsn"`
	Index       int              `json:"index"`
	Op          string           `json:"op"`
	Item        string           `json:"item"`
	Time        time.Time        `json:"time,omitzero"`
	Failed      time.Time        `json:"failed,omitzero"`
	Parked      time.Time        `json:"parked,omitzero"`
	ETag        string           `json:"etag,omitempty"`
	Expired     bool             `json:"expired,omitempty"`
	PreviousLSN int64            `json:"previous_lsn,omitempty"`
}

// documents are the rest of a letter: each in one of three forms.
type documents struct {
	Document     json.RawMessage `json:"document"`
	DocumentRaw  []byte          `json:"document_raw"`
	DocumentGzip []byte          `json:"document_gzip"`
	Previous     json.RawMessage `json:"previous"`
	PreviousRaw  []byte          `json:"previous_raw"`
	PreviousGzip []byte          `json:"previous_gzip"`
}

// letterVersion is the version of the form that this package writes. The number grows if a member gets another meaning;
// a member more needs no other version.
const letterVersion = 1

const (
	maxLevels = 120      // of a document within a letter: stores accept about 128 in all
	maxText   = 64 << 10 // bytes of a cause or stack: no error text is worth the space of a document
)

// Marshal returns a letter of a processor as a line of JSON, in the form described in the package comment. Marshal
// returns an error if the partition key is not JSON.
func Marshal(processor string, l feed.DeadLetter) ([]byte, error) {
	head, err := marshalHead(processor, "", l)
	if err != nil {
		return nil, err
	}
	documents, err := marshalDocuments(l, false)
	return append(append(head, documents...), '}'), err
}

// marshalHead returns a letter without the documents, and without the closing brace.
func marshalHead(processor, source string, l feed.DeadLetter) ([]byte, error) {
	c := &l.Change
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(letter{
		ID: l.ID, Version: letterVersion, Key: json.RawMessage(c.PartitionKey), Disposition: l.Disposition,
		Cause: clip(l.Cause), Stack: clip(l.Stack), Attempts: l.Attempts,
		Processor: processor, Source: source, Instance: l.Instance, Lease: l.Lease, Range: l.Range.String(),
		LSN: c.LSN, Index: l.Index, Op: c.Op.String(), Item: c.ID,
		Time: c.Time.UTC(), Failed: l.Failed.UTC(), Parked: l.Parked.UTC(),
		ETag: c.ETag, Expired: c.Expired, PreviousLSN: c.PreviousLSN,
	})
	if err != nil {
		return nil, fmt.Errorf("encode letter %s of %s: %w", l.ID, c.PartitionKey, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("}\n")), nil
}

// marshalDocuments returns the members of a letter after the head, compressed or not.
func marshalDocuments(l feed.DeadLetter, compressed bool) (text []byte, err error) {
	for _, d := range []struct {
		name string
		text []byte
	}{{"document", l.Change.Body}, {"previous", l.Change.Previous}} {
		if text, err = appendDocument(text, d.name, d.text, compressed); err != nil {
			return nil, fmt.Errorf("encode letter %s of %s: %w", l.ID, l.Change.PartitionKey, err)
		}
	}
	return text, nil
}

// clip shortens a long text.
func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// appendDocument appends a member with a document, in the first of the three forms that keeps every byte of the
// document.
func appendDocument(dst []byte, name string, doc []byte, compressed bool) ([]byte, error) {
	if doc == nil {
		return dst, nil
	}
	dst = append(append(dst, `,"`...), name...)
	if compressed {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(doc); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		return appendBase64(append(dst, `_gzip":`...), b.Bytes()), nil
	}
	if !staysUnaltered(doc) {
		return appendBase64(append(dst, `_raw":`...), doc), nil
	}
	// As JSON the document must keep every byte: a single line, no space at the ends, which a parser removes, and no
	// deeper nesting than readers accept.
	if levels, ok := rawjson.Check(doc); !ok || levels > maxLevels || bytes.ContainsAny(doc, "\r\n") || doc[0] <= ' ' ||
		doc[len(doc)-1] <= ' ' {
		return appendBase64(append(dst, `_raw":`...), doc), nil
	}
	return append(append(dst, `":`...), doc...), nil
}

func appendBase64(dst, raw []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), raw), '"')
}

// parse reads the text of Marshal.
func parse(text []byte) (l feed.DeadLetter, err error) {
	var said struct {
		letter
		documents
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return l, fmt.Errorf("parse letter: %w", err)
	}
	if said.Version > letterVersion {
		return l, fmt.Errorf("parse letter %s: %w: version is %d: want %d at most, or the newer version of changefeed that "+
			"wrote it", said.ID, ErrNewer, said.Version, letterVersion)
	}
	lo, hi, _ := strings.Cut(said.Range, "-")
	op, known := parseOp(said.Op)
	key, err := parseKey(said.Key)
	if said.ID == "" || err != nil || !known {
		return l, fmt.Errorf("parse letter: it has id %q, key %s, op %q: want all three", said.ID, said.Key, said.Op)
	}
	l = feed.DeadLetter{
		ID: said.ID, Index: said.Index, Disposition: said.Disposition, Cause: said.Cause, Stack: said.Stack,
		Attempts: said.Attempts,
		Instance: said.Instance, Lease: said.Lease, Range: feed.Range{Min: lo, Max: hi}, Failed: said.Failed,
		Parked: said.Parked,
		Change: feed.Change{
			Op: op, ID: said.Item, PartitionKey: key, LSN: said.LSN, Time: said.Time,
			ETag: said.ETag, PreviousLSN: said.PreviousLSN, Expired: said.Expired,
		},
	}
	if l.Change.Body, err = document(said.Document, said.DocumentRaw, said.DocumentGzip); err == nil {
		l.Change.Previous, err = document(said.Previous, said.PreviousRaw, said.PreviousGzip)
	}
	if err != nil {
		return l, fmt.Errorf("parse letter %s of %s: %w", l.ID, said.Key, err)
	}
	return l, nil
}

// spelled returns a key in the spelling of changes and letters: a caller may spell the same JSON in another way. An
// invalid key stays unchanged: no letters have such a key.
func spelled(key feed.PartitionKey) feed.PartitionKey {
	if one, err := pkey.Canonical(string(key)); err == nil {
		return one
	}
	return key
}

// parseKey returns the canonical text of a key: a container may write the same JSON in another way. An empty object
// stands for a missing component.
func parseKey(text []byte) (feed.PartitionKey, error) {
	var parts []any
	if err := json.Unmarshal(text, &parts); err != nil {
		return "", err
	}
	for i, part := range parts {
		if m, ok := part.(map[string]any); ok && len(m) == 0 {
			parts[i] = feed.Undefined
		}
	}
	return feed.Key(parts...), nil
}

func parseOp(text string) (feed.Op, bool) {
	for op := feed.OpUpsert; op <= feed.OpDelete; op++ {
		if op.String() == text {
			return op, true
		}
	}
	return 0, false
}

// document returns the bytes of a document from any form, nil if there is no document.
func document(plain json.RawMessage, raw, compressed []byte) (json.RawMessage, error) {
	// A few malicious bytes can unpack to gigabytes, and other users may write to the container of the letters.
	const most = 8 * service.MaxItem // far more than the largest document
	switch {
	case plain != nil:
		return plain, nil
	case compressed == nil:
		return raw, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, most+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most { // without an error, a truncated text would pass for the document
		return nil, fmt.Errorf("it unpacks to more than %d bytes", most)
	}
	return text, z.Close()
}
