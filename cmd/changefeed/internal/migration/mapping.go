package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// A spot is the place of an item in the target.
type spot struct {
	key feed.PartitionKey
	id  string
}

// String names the item for people.
func (s spot) String() string { return nameOf(s.key, s.id) }

// wanted is a document that the target should have.
type wanted struct {
	spot

	body    []byte    // without system properties
	expires time.Time // zero if the document's own ttl does not count
}

// A mapper says which documents of the target an item of the source becomes. The zero values of the optional fields
// keep documents unchanged.
type mapper struct {
	paths     []pkey.Path // of the target
	deleted   []string    // path of the property of a soft delete
	remaining bool        // documents keep the rest of their lives
	transform *transform
}

// A mapped item has the documents for the target, or the reason why there is none.
type mapped struct {
	documents []wanted
	err       error
}

// apply maps versions of items. asPlaces maps a version that is only needed for the places: a soft delete and the end
// of a life do not count. The error concerns no single item.
func (m *mapper) apply(ctx context.Context, versions []document, asPlaces bool) ([]mapped, error) {
	all := make([]mapped, len(versions))
	bodies := make([][]byte, 0, len(versions))
	at := make([]int, 0, len(versions))
	for i, v := range versions {
		if !v.exists() || !asPlaces && m.isDeleted(v.body) {
			continue
		}
		body, err := changeline.WithoutSystem(v.body)
		if err != nil {
			all[i].err = err
			continue
		}
		bodies, at = append(bodies, body), append(at, i)
	}
	outputs := make([]output, len(bodies))
	if m.transform == nil {
		for i, body := range bodies {
			outputs[i].documents = [][]byte{body}
		}
	} else if err := m.transform.run(ctx, bodies, outputs); err != nil {
		return nil, err
	}
	for i, out := range outputs {
		if out.err != nil {
			all[at[i]].err = out.err
			continue
		}
		all[at[i]] = m.place(versions[at[i]], out.documents, asPlaces)
	}
	return all, nil
}

// isDeleted reports whether a document is deleted by the property of a soft delete: any value but false and null.
func (m *mapper) isDeleted(body []byte) bool {
	if m.deleted == nil {
		return false
	}
	value := rawjson.Lookup(body, m.deleted...)
	return value != nil && string(value) != "false" && string(value) != "null"
}

// place finds the places of the documents of a version, and gives them the rest of its life.
func (m *mapper) place(v document, bodies [][]byte, asPlaces bool) (out mapped) {
	seen := map[spot]bool{}
	for _, body := range bodies {
		w, isOver, err := m.placeOne(v, body, asPlaces)
		switch {
		case err != nil:
			return mapped{err: err}
		case isOver:
			continue
		case seen[w.spot]:
			return mapped{err: fmt.Errorf("the transform makes two documents of one place: %v", w.spot)}
		}
		seen[w.spot] = true
		out.documents = append(out.documents, w)
	}
	return out
}

// placeOne finds the place of a document. isOver means that the document's life is over.
func (m *mapper) placeOne(v document, body []byte, asPlaces bool) (w wanted, isOver bool, err error) {
	id := rawjson.Lookup(body, "id")
	if w.id = rawjson.Text(id); w.id == "" {
		return w, false, fmt.Errorf("the document for the target has the id %s: want a text", pkey.Show(id))
	}
	if w.key, err = keyAt(m.paths, body); err != nil {
		return w, false, err
	}
	w.body = body
	if !m.remaining || asPlaces {
		return w, false, nil
	}
	w.body, w.expires = withRemaining(body, v.time)
	return w, !w.expires.IsZero() && !w.expires.After(now()), nil
}

// withRemaining returns a document with the rest of its life as ttl, which counts from the write in the target, and the
// time of the end. A document without a positive ttl stays unchanged.
func withRemaining(body []byte, written time.Time) ([]byte, time.Time) {
	s := rawjson.Scan(body, 0)
	var at rawjson.Span
	for _, key := range s.Object() {
		if key.Is("ttl") {
			at = s.Value() // the last of several counts
		}
	}
	life, err := strconv.ParseInt(string(at.Of(body)), 10, 32)
	if err != nil || life <= 0 || written.IsZero() {
		return body, time.Time{}
	}
	expires := written.Add(time.Duration(life) * time.Second)
	left := max(1, int64(expires.Sub(now()).Round(time.Second)/time.Second))
	if left >= life {
		return body, expires
	}
	changed := append(bytes.Clone(body[:at.From]), strconv.FormatInt(left, 10)...)
	return append(changed, body[at.To:]...), expires
}

// lifeOf returns when a document of the target expires by its own ttl; zero without an expiry.
func lifeOf(d document) time.Time {
	life, err := strconv.ParseInt(string(rawjson.Lookup(d.body, "ttl")), 10, 32)
	if err != nil || life <= 0 {
		return time.Time{}
	}
	return d.time.Add(time.Duration(life) * time.Second)
}

// lifeGrain is how much two ends of a life may differ: a ttl counts whole seconds, and two accounts have two clocks.
const lifeGrain = 5 * time.Second

// isSame reports whether the target has a wanted document already.
func (m *mapper) isSame(w wanted, has document) bool {
	if !m.remaining || w.expires.IsZero() {
		return fingerprint(w.body, false) == fingerprint(has.body, false)
	}
	return fingerprint(w.body, true) == fingerprint(has.body, true) && sameLife(w.expires, lifeOf(has))
}

// sameLife reports whether two documents end at about the same time.
func sameLife(one, other time.Time) bool {
	return one.IsZero() == other.IsZero() && one.Sub(other).Abs() <= lifeGrain
}

// errNoAnswer means that a transform has not answered for a document.
var errNoAnswer = errors.New("the transform has written no line for the document: want one for each, and null for none")
