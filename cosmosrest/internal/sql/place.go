package sql

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Places of rows, by which a page of sorted or grouped rows goes on.
//
// Rows that depend on each other have an order in which each has a place of its own: by the
// keys they are sorted by, then by the resource id of their document, then by their number
// among the rows of that document, counted before WHERE. A filter takes rows away and
// leaves the places of the others as they are. So a page can go on where another ended,
// also under another filter, after a split, and when rows were written meanwhile. A row
// number would do none of that.

// Place is where a page of such rows ended: the place of its last row.
type Place struct {
	Values []json.RawMessage `json:"v,omitempty"` // that it is sorted by, as [ResumeFilter] has them
	Doc    uint64            `json:"d,omitempty"` // number of the document's resource id
	Row    int               `json:"n,omitempty"` // among those of the document
}

// ResumeFilter is sent by the .NET SDK to go on with sorted rows: those before Values are
// left out. Of the rows that equal Values, Exclude leaves out all; else those are left out
// whose document comes before RID, if there is one.
type ResumeFilter struct {
	Values  []json.RawMessage `json:"value"` // a scalar for itself, [] for undefined, {"type":"array","low":1,"high":2} for a hash
	RID     string            `json:"rid"`
	Exclude bool              `json:"exclude"`
}

// resume is where the rows of a request begin. A continuation and a resume filter may come
// together, with the filter at an earlier place than the token; the later of the two
// counts.
type resume struct {
	after *point // of a continuation
	taken int64  // rows up to there, for TOP and LIMIT

	from    *point // of a resume filter
	exclude bool
	anyDoc  bool // the filter has no resource id
}

// point is a Place to compare rows with.
type point struct {
	keys []value
	doc  uint64
	row  int
}

// After has the rows begin after a place that a query with the same [Bound.Sorting] gave,
// when so many rows had been taken.
func (b *Bound) After(place Place, taken int64) error {
	keys, err := b.sortKeys(place.Values)
	if err != nil {
		return err
	}
	b.resume.after, b.resume.taken = &point{keys, place.Doc, place.Row}, taken
	return nil
}

// From applies a resume filter.
func (b *Bound) From(r ResumeFilter) error {
	if len(b.q.plan.order) == 0 || b.q.plan.base != nil {
		return failf(-1, "resumeFilter is for a query with ORDER BY whose FROM is the container.")
	}
	keys, err := b.sortKeys(r.Values)
	if err != nil {
		return err
	}
	at := &point{keys: keys}
	if r.RID != "" {
		var ok bool
		if at.doc, ok = ridNumber(r.RID); !ok {
			return failf(-1, "resumeFilter.rid is %s: want the resource id of an item.", clip(r.RID))
		}
	}
	b.resume.from, b.resume.exclude, b.resume.anyDoc = at, r.Exclude, r.RID == ""
	return nil
}

// sortKeys reads a value for each expression by which rows are sorted.
func (b *Bound) sortKeys(values []json.RawMessage) ([]value, error) {
	p := b.q.plan
	want := max(len(p.order), len(p.groups))
	if len(values) != want {
		return nil, failf(-1, "The query goes on from %d sort values: want %d, one for each that it sorts by.", len(values), want)
	}
	keys := make([]value, want)
	for i, text := range values {
		var ok bool
		if keys[i], ok = resumeValue(text); !ok {
			return nil, failf(-1, `The query goes on from the sort value %s: want a scalar, [] for undefined, or {"type":"array","low":1,"high":2} with array or object.`, clip(string(text)))
		}
	}
	return keys, nil
}

// hashed is the form of a sort value that is no scalar.
type hashed struct {
	Type string `json:"type"`           // array or object; string is ours
	Head string `json:"head,omitempty"` // of a string that is too long for a continuation
	Low  int64  `json:"low"`
	High int64  `json:"high"`
}

// resumeValue reads a sort value; ok is false for any other text.
func resumeValue(raw json.RawMessage) (value, bool) {
	v := documentValue(raw)
	switch v.kind {
	case undefined:
		return v, false
	case array:
		return value{}, rawjson.Element(v.raw, 0) == nil
	case object:
		var hash hashed
		if json.Unmarshal(raw, &hash) != nil {
			return value{}, false
		}
		sum := hash128{uint64(hash.Low), uint64(hash.High)}.bytes()
		switch hash.Type {
		case "array":
			return value{kind: array, decoded: true, text: sum}, true
		case "object":
			return value{kind: object, decoded: true, text: sum}, true
		case "string":
			return value{kind: str, decoded: true, text: []byte(hash.Head), raw: sum}, true
		}
		return value{}, false
	}
	return sortKey(v), true
}

// maxPlaceText is how many bytes the strings of a place may have together: SDKs allow a
// continuation 1 KB, in base64, and the rest of it needs room too.
const maxPlaceText = 300

// maxEscape is the most bytes that one byte of a string may take in JSON: \u0001.
const maxEscape = 6 // bytes that one may be written as

// Row is a row of the result of a [Run].
type Row struct {
	JSON json.RawMessage

	row *row // without its value
}

// Place is where the row is. Each key has an equal part of the room.
func (r *Row) Place() Place {
	place := Place{Doc: r.row.doc, Row: r.row.at}
	for _, key := range r.row.keys {
		place.Values = append(place.Values, resumeText(key, maxPlaceText/len(r.row.keys)))
	}
	return place
}

// Held is about how many bytes the row holds.
func (r *Row) Held() int { return len(r.JSON) + r.row.size() }

// ResumeValue is the form of a sort value in a [ResumeFilter]; an empty text is undefined.
func ResumeValue(sorted json.RawMessage) json.RawMessage {
	if len(sorted) == 0 {
		return resumeText(value{}, 0)
	}
	return resumeText(sortKey(documentValue(sorted)), len(sorted))
}

// resumeText writes a sort value in at most so many bytes. A longer string becomes its
// beginning and a hash of the whole.
func resumeText(v value, most int) json.RawMessage {
	switch {
	case v.kind == undefined:
		return json.RawMessage("[]")
	case v.kind == number && math.IsInf(v.float(), 0):
		return json.RawMessage(map[bool]string{true: "-", false: ""}[v.float() < 0] + "1e999") // out of range, as it was written
	case v.kind < str:
		return v.appendJSON(nil)
	case v.kind == str:
		if text := v.appendJSON(nil); len(text) <= most {
			return text
		}
	}
	hash := hashed{Type: "object"}
	sum := v.text
	switch v.kind {
	case array:
		hash.Type = "array"
	case str:
		hash.Type, hash.Head = "string", string(cutText(v.text, most/maxEscape))
		sum = distinctHash(v).bytes()
	}
	hash.Low, hash.High = int64(binary.LittleEndian.Uint64(sum)), int64(binary.LittleEndian.Uint64(sum[8:]))
	b, _ := json.Marshal(hash) // always marshals
	return b
}

// cutText is the beginning of a text, up to the end of a character.
func cutText(text []byte, most int) []byte {
	for most > 0 && most < len(text) && text[most]&0xc0 == 0x80 {
		most--
	}
	return text[:min(most, len(text))]
}

// compareKeys orders a row and a point by the values that rows are sorted by. A string of
// which the point has only the beginning is the same if its hash is; any other that begins
// like it counts as later: such a row may come again, which is better than to miss it.
func (p *plan) compareKeys(keys, at []value) int {
	for i, own := range keys {
		diff := 0
		switch cut := at[i]; {
		case cut.raw == nil || cut.kind != own.kind || !bytes.HasPrefix(own.text, cut.text):
			diff = order(own, cut)
		case !bytes.Equal(distinctHash(own).bytes(), cut.raw):
			return 1
		}
		if diff != 0 && i < len(p.order) && p.order[i].desc {
			return -diff
		}
		if diff != 0 {
			return diff
		}
	}
	return 0
}

// compareDocs orders two documents whose rows have equal keys: upwards if the first key is,
// as in the service, whose SDKs merge parts in that order.
func (p *plan) compareDocs(a, b uint64) int {
	if len(p.order) > 0 && p.order[0].desc {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// compareRows orders two rows by their places. Rows of no document keep the order in which
// they came.
func (p *plan) compareRows(a, b *row) int {
	if diff := cmp.Or(p.compareKeys(a.keys, b.keys), p.compareDocs(a.doc, b.doc)); diff != 0 || a.doc == 0 {
		return diff
	}
	return cmp.Compare(a.at, b.at)
}

// showsRow reports whether a row comes after the place where the rows begin.
func (r *resume) showsRow(p *plan, own *row) bool {
	if at := r.after; at != nil && cmp.Or(p.compareKeys(own.keys, at.keys), p.compareDocs(own.doc, at.doc), cmp.Compare(own.at, at.row)) <= 0 {
		return false
	}
	if r.from == nil {
		return true
	}
	switch diff := p.compareKeys(own.keys, r.from.keys); {
	case diff != 0:
		return diff > 0
	case r.exclude:
		return false
	}
	return r.anyDoc || p.compareDocs(own.doc, r.from.doc) >= 0
}

// Unsettled reports whether the place has a string of which only the beginning is known.
// Then [Bound.Settle] is to see the documents of the container until it has found the row;
// without that, rows may come again.
func (b *Bound) Unsettled() bool {
	at := b.resume.after
	return at != nil && slices.ContainsFunc(at.keys, func(v value) bool { return v.kind == str && v.raw != nil })
}

// Settle reports whether a document has the row at the place, and notes its keys in full.
// WHERE is left out, because the query may have another one by now.
func (b *Bound) Settle(doc []byte) bool {
	at, p := b.resume.after, *b.q.plan
	if p.base != nil || !p.grouped() && DocumentNumber(doc) != at.doc {
		return false
	}
	p.where = nil // which may be another one now
	b.f.beginDocument(doc)
	p.eachRow(&b.f, func() bool {
		if !p.grouped() && b.f.combination != at.row {
			return true
		}
		var keys []value
		for _, key := range p.order {
			keys = append(keys, sortKey(key.node.eval(&b.f)))
		}
		for _, key := range p.groups {
			keys = append(keys, sortKey(key.eval(&b.f)))
		}
		if p.compareKeys(keys, at.keys) == 0 {
			at.keys = keys
		}
		return b.Unsettled()
	})
	return !b.Unsettled()
}

// DocumentNumber is the number in the resource id of an item, by which rows with equal keys
// are sorted: SDKs go on among them by it. The id is one of the system properties, which
// end the document; the last is looked for, because a document may hold another. Only items
// have a number.
func DocumentNumber(doc []byte) uint64 {
	n, _ := ridNumber(service.SystemText(doc, "_rid"))
	return n
}

// ridNumber is the last part of an item's resource id, a little-endian number.
func ridNumber(rid string) (uint64, bool) {
	const size = 16 // bytes of an item's
	b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(rid, "-", "/"))
	if err != nil || len(b) != size {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[size-8:]), true
}
