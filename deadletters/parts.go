package deadletters

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A letter has one or two documents of the service, each of up to nearly 2 MB, and the letter itself is written as one
// document. If that document would be too large, the text after its head is cut into parts: documents of the same
// partition key, so that a single batch can remove all of them. A single batch cannot write them, because the size of a
// batch is bounded like the size of a document. So the letter names the parts and is written last. The name of a part
// contains a hash of the whole text: a letter that is written again, with the same documents, has the same parts, and
// never the parts of another letter.

// partSize bounds the bytes of documents in a letter's own document, and in each of its parts. The other members take
// less than the rest of a document.
const partSize = 1 << 20

// envelopeOf returns the document of a letter, and the parts.
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
			parts = append(parts, append(rawjson.AppendString(append(begin(name, key), `,"part":`...), string(chunk)),
				'}'))
		}
		rest = nil
	}
	text = append(append(text, `,"letter":`...), head...)
	return append(append(text, rest...), "}}"...), parts, nil
}

// begin returns the beginning of each document of a box.
func begin(id string, key feed.PartitionKey) []byte {
	text := rawjson.AppendString([]byte(`{"id":`), id)
	text = rawjson.AppendString(append(text, `,"key":`...), keyText(key))
	return append(text, `,"ttl":-1`...)
}

// isPart reports whether a document is a part of a letter.
func isPart(text []byte) bool { return rawjson.Lookup(text, "part") != nil }

// partIDs returns the ids of the parts of a letter; rest is the text after the head.
func partIDs(id string, rest []byte) (ids []string) {
	sum := sha256.Sum256(rest)
	for i := 0; i*partSize < len(rest); i++ {
		ids = append(ids, fmt.Sprintf("%s.%x.%d", id, sum[:8], i+1))
	}
	return ids
}

// partsOf returns the ids of the parts of the letter in a document, none if the letter is whole.
func partsOf(text []byte) (ids []string, err error) {
	if list := rawjson.Lookup(text, "parts"); list != nil {
		err = json.Unmarshal(list, &ids)
	}
	return ids, err
}

// openEnvelope assembles the letter from the document and the parts. [feed.ErrNotFound] means that a part is missing.
func (b *ContainerBox) openEnvelope(ctx context.Context, key feed.PartitionKey, text []byte) (l feed.DeadLetter,
	err error,
) {
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
