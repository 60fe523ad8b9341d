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

// Places of rows, after which the next page of sorted or grouped rows begins.
//
// Rows that depend on each other have a total order: by their sort keys, then by the resource id of their document,
// then by their number among the rows of that document, counted before WHERE. If a filter removes rows, the places of
// the other rows do not change. So a page can begin where another ended, even with another filter, after a split, or
// if rows were written meanwhile. A row number would not allow this.

// Place is the place of the last row of a page.
type Place struct {
	Values []json.RawMessage `json:"v,omitempty"` // its sort keys, as in [ResumeFilter]
	Doc    uint64            `json:"d,omitempty"` // number of the document's resource id
	Row    int               `json:"n,omitempty"` // number among the rows of the document
}

// ResumeFilter is the .NET SDK's way to continue after sorted rows. Rows before Values are left out. If Exclude is
// set, all rows that equal Values are left out too. Otherwise, rows that equal Values are left out if their document
// comes before RID; without RID, none of them is left out.
type ResumeFilter struct {
	// a scalar as it is, [] for undefined, {"type":"array","low":1,"high":2} for a hash
	Values  []json.RawMessage `json:"value"`
	RID     string            `json:"rid"`
	Exclude bool              `json:"exclude"`
}

// resume is where the rows of a request begin. If a continuation comes together with a resume filter, the filter is
// at an earlier place; the later place counts.
type resume struct {
	after *point // from a continuation
	taken int64  // rows returned so far, for TOP and LIMIT

	from    *point // from a resume filter
	exclude bool
	anyDoc  bool // the filter has no resource id
}

// point is a Place in the form for comparisons with rows.
type point struct {
	keys []value
	doc  uint64
	row  int
}

// After makes the rows begin after a place; taken is the number of rows returned so far. The place must come from a
// query with the same [Bound.Sorting].
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

// sortKeys reads a value for each expression that sorts rows.
func (b *Bound) sortKeys(values []json.RawMessage) ([]value, error) {
	p := b.q.plan
	want := len(p.order) + len(p.groups)
	if len(values) != want {
		return nil, failf(-1, "The query goes on from %d sort values: want %d, one for each that it sorts by.",
			len(values), want)
	}
	keys := make([]value, want)
	for i, text := range values {
		var ok bool
		if keys[i], ok = resumeValue(text); !ok {
			return nil,
				failf(-1,
					`The query goes on from the sort value %s: want a scalar, [] for undefined, or {"type":"array","low":1,"high":2} with array or object.`, clip(string(text)))
		}
	}
	return keys, nil
}

// hashed is the form of a sort value that is not a scalar, and of a long string.
type hashed struct {
	Type string `json:"type"`           // array or object; string is our own extension
	Head string `json:"head,omitempty"` // beginning of a string that is too long for a continuation
	Low  int64  `json:"low"`
	High int64  `json:"high"`
}

// resumeValue reads a sort value; ok is false if the text is invalid.
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

// maxPlaceText is how many bytes the strings of a place may have together. SDKs allow a continuation 1 KB, in base64,
// and its other parts need room too.
const maxPlaceText = 300

// maxEscape is the largest number of bytes that a byte of a string takes in JSON, as in \u0001.
const maxEscape = 6 // bytes

// Row is a row of the result of a [Run].
type Row struct {
	JSON json.RawMessage

	row *row // without its value
}

// Place returns the place of the row. All keys share the room equally.
func (r *Row) Place() Place {
	place := Place{Doc: r.row.doc, Row: r.row.at}
	for _, key := range r.row.keys {
		place.Values = append(place.Values, resumeText(key, maxPlaceText/len(r.row.keys)))
	}
	return place
}

// Held returns about how many bytes the row holds.
func (r *Row) Held() int { return len(r.JSON) + r.row.size() }

// ResumeValue returns a sort value in the form for a [ResumeFilter]; an empty text means undefined.
func ResumeValue(sorted json.RawMessage) json.RawMessage {
	if len(sorted) == 0 {
		return resumeText(value{}, 0)
	}
	return resumeText(sortKey(documentValue(sorted)), len(sorted))
}

// resumeText writes a sort value in at most so many bytes. A longer string is replaced by its beginning and a hash of
// the whole string.
func resumeText(v value, most int) json.RawMessage {
	switch {
	case v.kind == undefined:
		return json.RawMessage("[]")
	case v.kind == number && math.IsInf(v.float(), 0):
		// out of range, as in the document
		return json.RawMessage(map[bool]string{true: "-", false: ""}[v.float() < 0] + "1e999")
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
	b, _ := json.Marshal(hash) // cannot fail
	return b
}

// cutText returns the beginning of a text, up to the end of a character.
func cutText(text []byte, most int) []byte {
	for most > 0 && most < len(text) && text[most]&0xc0 == 0x80 {
		most--
	}
	return text[:min(most, len(text))]
}

// compareKeys orders a row and a point by the sort keys. If the point has only the beginning of a string, a row's
// string is equal if its hash is equal. Any other string with this beginning counts as later: such a row may come
// again, which is better than a missing row.
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

// compareDocs orders two documents whose rows have equal keys. The order is descending if the first key is
// descending, as in the service, because its SDKs merge parts in that order.
func (p *plan) compareDocs(a, b uint64) int {
	if len(p.order) > 0 && p.order[0].desc {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// compareRows orders two rows by their places. Rows without a document keep their order.
func (p *plan) compareRows(a, b *row) int {
	if diff := cmp.Or(p.compareKeys(a.keys, b.keys), p.compareDocs(a.doc, b.doc)); diff != 0 || a.doc == 0 {
		return diff
	}
	return cmp.Compare(a.at, b.at)
}

// showsRow reports whether a row comes after the place where the rows begin.
func (r *resume) showsRow(p *plan, own *row) bool {
	if at := r.after; at != nil && cmp.Or(p.compareKeys(own.keys, at.keys), p.compareDocs(own.doc, at.doc),
		cmp.Compare(own.at, at.row)) <= 0 {
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

// Unsettled reports whether the place has a string of which only the beginning is known. Then the caller should call
// [Bound.Settle] with the documents of the container until Settle finds the row; otherwise rows may come again.
func (b *Bound) Unsettled() bool {
	at := b.resume.after
	return at != nil && slices.ContainsFunc(at.keys, func(v value) bool { return v.kind == str && v.raw != nil })
}

// Settle reports whether a document contains the row of the place, and stores the row's full keys. Settle ignores
// WHERE, because the query may have another filter now.
func (b *Bound) Settle(doc []byte) bool {
	at, p := b.resume.after, *b.q.plan
	if p.base != nil || !p.grouped() && DocumentNumber(doc) != at.doc {
		return false
	}
	p.where = nil // the filter may have changed
	b.f.beginDocument(doc)
	p.eachRow(&b.f, func() bool {
		if !p.grouped() && b.f.combination != at.row {
			return true
		}
		at.settle(p.keysOfRow(&b.f), len(p.order)*min(1, len(p.groups)))
		return b.Unsettled()
	})
	return !b.Unsettled()
}

// keysOfRow returns the sort keys of the row in the frame. Keys that depend on aggregates are not known yet.
func (p *plan) keysOfRow(f *frame) (keys []value) {
	if p.grouped() {
		f.keys, f.aggregates = nil, make([]value, len(p.aggregates))
		for _, key := range p.groups {
			f.keys = append(f.keys, key.eval(f))
		}
		return p.groupPlace(f)
	}
	for _, key := range p.order {
		keys = append(keys, sortKey(key.node.eval(f)))
	}
	return keys
}

// settle completes the keys of the place by those of a row, if the row is that of the place: its keys from some number
// on are equal.
func (at *point) settle(keys []value, from int) {
	if (&plan{}).compareKeys(keys[from:], at.keys[from:]) != 0 {
		return
	}
	for i := range keys {
		if (&plan{}).compareKeys(keys[i:i+1], at.keys[i:i+1]) == 0 {
			at.keys[i] = keys[i]
		}
	}
}

// DocumentNumber returns the number in the resource id of an item, which orders rows with equal keys; SDKs use this
// number to continue among them. The resource id is a system property, and these are at the end of the document.
// DocumentNumber takes the last member of this name, because the document may have another. Only items have a number.
func DocumentNumber(doc []byte) uint64 {
	n, _ := ridNumber(service.SystemText(doc, "_rid"))
	return n
}

// ridNumber returns the last part of an item's resource id, a little-endian number.
func ridNumber(rid string) (uint64, bool) {
	const size = 16 // bytes of an item's resource id
	b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(rid, "-", "/"))
	if err != nil || len(b) != size {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[size-8:]), true
}
