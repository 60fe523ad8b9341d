package deadletters

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A letter has one or two documents that the service accepts, each of nearly 2 MB, and is itself
// written as one. Where it would be too large, what follows its head is cut in parts: documents of
// the same partition key, so that all of it is removed in one batch. They cannot be written in one,
// which is bounded as a document is. So the letter names its parts and is written last, and the
// name of a part has a hash of the whole: a letter that is written again, which is with the same
// documents, has the same parts, and never those of another one.

// partSize is how many bytes of documents a letter has in its own document, and in each of its parts.
// What is beside them takes less than the rest of a document.
const partSize = 1 << 20

// envelopeOf returns the document of a letter, and those of its parts.
func (b *ContainerBox) envelopeOf(l feed.DeadLetter) (text []byte, parts [][]byte, err error) {
	head, err := marshalHead(b.processor, b.source, l)
	if err != nil {
		return nil, nil, err
	}
	rest, err := marshalDocuments(l, false)
	if err == nil && len(rest) > partSize {
		rest, err = marshalDocuments(l, true)
	}
	if err != nil {
		return nil, nil, err
	}
	key, id := l.Change.PartitionKey, b.id(l.ID)
	text = begin(id, key)
	if len(rest) > partSize {
		names := partIDs(id, rest)
		list, err := json.Marshal(names)
		if err != nil {
			return nil, nil, err
		}
		text = append(append(text, `,"parts":`...), list...)
		for i, name := range names {
			chunk := rest[i*partSize : min((i+1)*partSize, len(rest))]
			parts = append(parts, append(rawjson.AppendString(append(begin(name, key), `,"part":`...), string(chunk)), '}'))
		}
		rest = nil
	}
	text = append(append(text, `,"letter":`...), head...)
	return append(append(text, rest...), "}}"...), parts, nil
}

// begin is what each document of a box begins with.
func begin(id string, key feed.PartitionKey) []byte {
	text := rawjson.AppendString([]byte(`{"id":`), id)
	text = rawjson.AppendString(append(text, `,"key":`...), keyText(key))
	return append(text, `,"ttl":-1`...)
}

// isPart reports whether a document is the part of a letter.
func isPart(text []byte) bool { return rawjson.Lookup(text, "part") != nil }

// partIDs are the ids of the parts of a letter whose head is followed by rest.
func partIDs(id string, rest []byte) (ids []string) {
	sum := sha256.Sum256(rest)
	for i := 0; i*partSize < len(rest); i++ {
		ids = append(ids, fmt.Sprintf("%s.%x.%d", id, sum[:8], i+1))
	}
	return ids
}

// partsOf are the ids of the parts of the letter in a document, none if it is whole.
func partsOf(text []byte) (ids []string, err error) {
	if list := rawjson.Lookup(text, "parts"); list != nil {
		err = json.Unmarshal(list, &ids)
	}
	return ids, err
}

// openEnvelope takes the letter out of its document and of its parts. [feed.ErrNotFound] is that of a part.
func (b *ContainerBox) openEnvelope(ctx context.Context, key feed.PartitionKey, text []byte) (l feed.DeadLetter, err error) {
	var rest []byte
	parts, err := partsOf(text)
	if err != nil {
		return l, err
	}
	for _, id := range parts {
		doc, err := b.getDocument(ctx, key, id)
		if err != nil {
			return l, fmt.Errorf("part %q: %w", id, err)
		}
		var chunk string
		if err := json.Unmarshal(rawjson.Lookup(doc, "part"), &chunk); err != nil {
			return l, fmt.Errorf("part %q: %w", id, err)
		}
		rest = append(rest, chunk...)
	}
	letter := rawjson.Lookup(text, "letter")
	if len(parts) > 0 {
		letter = append(append(letter[:len(letter)-1:len(letter)-1], rest...), '}')
	}
	return parse(letter)
}
