package docstore

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// maxPatchOps is the service's limit of operations in a patch.
const maxPatchOps = 10

// applyPatch returns the body after the operations, in order. After an error, no operation has taken effect. The
// caller must have checked body with parseDocument, and must check the result again. Text that no operation touches
// stays the same, to the byte: a patch of a member must not rewrite the numbers of other members.
//
// The operations are the service's: add and set create or overwrite a member; in an array, add inserts and set
// overwrites; replace and remove need an existing value; incr creates a missing member; move is remove and add. A
// missing operand is null.
func applyPatch(body []byte, ops []feed.PatchOp) ([]byte, error) {
	if len(ops) == 0 || len(ops) > maxPatchOps {
		return nil, refuse("patch has %d operations: want 1 to %d", len(ops), maxPatchOps)
	}
	for i, op := range ops {
		var err error
		if body, err = applyOp(body, op); err != nil {
			return nil, fmt.Errorf("apply patch operation %d (%s %q): %w", i, op.Op, op.Path, err)
		}
	}
	// without its system properties the document may be smaller, but only a parser knows
	if len(body) > maxDocument+maxSystem {
		return nil, fmt.Errorf("%w: patched body has %d bytes: want at most %d", ErrTooLarge, len(body), maxDocument)
	}
	return body, nil
}

// patchTouches reports whether an operation changes the value at path. An operation does so if its path or its source
// is path, or is above or below path.
func patchTouches(ops []feed.PatchOp, path pkey.Path) bool {
	return slices.ContainsFunc(ops, func(op feed.PatchOp) bool {
		return pointerTouches(op.Path, path) || op.Op == "move" && pointerTouches(op.From, path)
	})
}

// pointerTouches reports whether a change at a pointer can change the value at a path: this is so if the pointer is a
// prefix of the path, or the path of the pointer.
func pointerTouches(pointer string, path pkey.Path) bool {
	p, err := parsePointer(pointer)
	if err != nil {
		return false // applyPatch refuses this pointer
	}
	n := min(len(p), len(path))
	return slices.Equal(p[:n], path[:n])
}

// keepsKey refuses a patch that touches a partition key path. Otherwise the document would belong to another logical
// partition, which a write of this batch cannot reach.
func keepsKey(ops []feed.PatchOp, paths []pkey.Path) error {
	for i, op := range ops {
		for _, path := range paths {
			if patchTouches(ops[i:i+1], path) {
				return refuse("patch operation %d (%s %q) touches the partition key %s: want another path",
					i, op.Op, op.Path, path)
			}
		}
	}
	return nil
}

// applyOp returns the body after an operation.
func applyOp(body []byte, op feed.PatchOp) ([]byte, error) {
	path, err := userPointer(op.Path)
	if err != nil {
		return nil, err
	}
	value := bytes.Trim(op.Value, " \t\r\n")
	if len(value) == 0 {
		value = []byte("null")
	}
	if err := checkJSON("value", value); err != nil {
		return nil, err
	}
	switch op.Op {
	case "add":
		return addAt(body, path, value)
	case "set":
		return setAt(body, path, value)
	case "replace":
		return replaceAt(body, path, value)
	case "remove":
		return removeAt(body, path)
	case "incr":
		return incrementAt(body, path, value)
	case "move":
		return moveTo(body, op.From, path)
	}
	return nil, refuse("operation %q is unknown: want add, set, replace, remove, incr or move", op.Op)
}

// userPointer reads a JSON pointer to a value that a user may change.
func userPointer(pointer string) ([]string, error) {
	p, err := parsePointer(pointer)
	if err != nil {
		return nil, err
	}
	if p[0] == "id" || service.IsSystem(p[0]) {
		return nil, refuse("%s cannot be patched: want a path to another property", p[0])
	}
	return p, nil
}

// parsePointer reads a JSON pointer to a value within the document, as in RFC 6901.
func parsePointer(pointer string) ([]string, error) {
	if !strings.HasPrefix(pointer, "/") || !utf8.ValidString(pointer) {
		return nil, refuse("path %q is not a JSON pointer: want one as in /address/city", pointer)
	}
	segments := strings.Split(pointer[1:], "/")
	for i, s := range segments {
		if strings.Count(s, "~") != strings.Count(s, "~0")+strings.Count(s, "~1") {
			return nil, refuse("path %q has a ~ by itself: want ~0 for ~ and ~1 for /", pointer)
		}
		if strings.Contains(s, "~") {
			segments[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
		}
	}
	return segments, nil
}

// place is the target of a pointer: an item of an object or array, or the place for a new item.
type place struct {
	parent rawjson.Span
	name   string // last segment of the pointer
	array  bool
	index  int          // in an array; its length for "-"
	count  int          // items of the parent
	item   rawjson.Span // the whole member, or the element; empty if there is none
	value  rawjson.Span
}

// found reports whether the place has a value.
func (p place) found() bool { return p.value.To > 0 }

// findPlace follows a pointer. All values on the path, except the last, must exist.
func findPlace(body []byte, pointer []string) (place, error) {
	whole := rawjson.Scan(body, 0)
	at := whole.Value()
	for i, name := range pointer {
		p, err := stepInto(body, at, name)
		if err != nil {
			return place{}, err
		}
		if i == len(pointer)-1 {
			return p, nil
		}
		if !p.found() {
			return place{}, refuse("nothing is at segment %q: want an object or array", name)
		}
		at = p.value
	}
	return place{}, refuse("path is empty: want one as in /address/city")
}

// stepInto finds a segment in a value. stepInto visits all members even after a match, because the last member of a
// name counts.
func stepInto(body []byte, parent rawjson.Span, name string) (place, error) {
	p := place{parent: parent, name: name}
	scanner := rawjson.Scan(body, parent.From)
	switch body[parent.From] {
	case '{':
		for from, key := range scanner.Object() {
			value := scanner.Value()
			if p.count++; key.Is(name) {
				p.item, p.value = rawjson.Span{From: from, To: value.To}, value
			}
		}
	case '[':
		p.array, p.index = true, arrayIndex(name)
		for i := range scanner.Array() {
			value := scanner.Value()
			if p.count++; i == p.index {
				p.item, p.value = value, value
			}
		}
		if name == "-" {
			p.index = p.count
		}
		if p.index < 0 || p.index > p.count {
			return place{}, refuse("array has %d elements and none at %q: want an index below that, or - to append",
				p.count, name)
		}
	default:
		return place{}, refuse("nothing can be at segment %q of %s: want an object or array", name,
			pkey.Show(parent.Of(body)))
	}
	return p, nil
}

// arrayIndex reads an array index in the form of JSON pointers, without sign and leading zeros. For any other text
// the result is -1.
func arrayIndex(segment string) int {
	n, err := strconv.Atoi(segment)
	if err != nil || n < 0 || strconv.Itoa(n) != segment {
		return -1
	}
	return n
}

// addAt creates or overwrites a member, or inserts an element.
func addAt(body []byte, path []string, value []byte) ([]byte, error) {
	p, err := findPlace(body, path)
	if err != nil {
		return nil, err
	}
	if p.array && p.found() {
		return splice(body, rawjson.Span{From: p.item.From, To: p.item.From}, value, []byte{','}), nil
	}
	return put(body, p, value), nil
}

// setAt creates or overwrites a member, overwrites an element, or appends an element at "-".
func setAt(body []byte, path []string, value []byte) ([]byte, error) {
	p, err := findPlace(body, path)
	if err != nil {
		return nil, err
	}
	if p.array && !p.found() && p.name != "-" {
		return nil, refuse("array has %d elements and none at %q: want an index below that, or - to append", p.count,
			p.name)
	}
	return put(body, p, value), nil
}

// put overwrites the value at a place, or appends to its parent.
func put(body []byte, p place, value []byte) []byte {
	if p.found() {
		return splice(body, p.value, value)
	}
	var before []byte
	if p.count > 0 {
		before = append(before, ',')
	}
	if !p.array {
		before = append(rawjson.AppendString(before, p.name), ':')
	}
	last := p.parent.To - len("}")
	return splice(body, rawjson.Span{From: last, To: last}, before, value)
}

// replaceAt overwrites a value that must exist.
func replaceAt(body []byte, path []string, value []byte) ([]byte, error) {
	p, err := findExisting(body, path)
	if err != nil {
		return nil, err
	}
	return splice(body, p.value, value), nil
}

// findExisting is findPlace for a value that must exist.
func findExisting(body []byte, path []string) (place, error) {
	p, err := findPlace(body, path)
	if err == nil && !p.found() {
		err = p.missing()
	}
	return p, err
}

func (p place) missing() error {
	return refuse("nothing is at segment %q: want something that exists", p.name)
}

// removeAt removes an element, or all members of a name. If only the last member were removed, an earlier member of
// the same name would become valid.
func removeAt(body []byte, path []string) ([]byte, error) {
	p, err := findExisting(body, path)
	if err != nil {
		return nil, err
	}
	var rest rawjson.Runs
	scanner := rawjson.Scan(body, p.parent.From)
	if p.array {
		for i := range scanner.Array() {
			rest.Add(scanner.Value(), i != p.index)
		}
	} else {
		for from, key := range scanner.Object() {
			value := scanner.Value()
			rest.Add(rawjson.Span{From: from, To: value.To}, !key.Is(p.name))
		}
	}
	return splice(body, rawjson.Span{From: p.parent.From + len("{"), To: p.parent.To - len("}")},
		rest.Append(nil, body)), nil
}

// incrementAt adds to a number; a missing member is created with the operand as its value.
func incrementAt(body []byte, path []string, value []byte) ([]byte, error) {
	p, err := findPlace(body, path)
	if err != nil {
		return nil, err
	}
	if !isNumber(value) {
		return nil, refuse("value is %s: want a number", pkey.Show(value))
	}
	if !p.found() && p.array {
		return nil, p.missing()
	}
	if !p.found() {
		return put(body, p, value), nil
	}
	old := p.value.Of(body)
	if !isNumber(old) {
		return nil, refuse("%s is there: want a number", pkey.Show(old))
	}
	sum, err := addNumbers(old, value)
	if err != nil {
		return nil, err
	}
	return splice(body, p.value, sum), nil
}

func isNumber(raw []byte) bool { return raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9' }

// addNumbers adds exactly if both numbers and their sum are an int64, because a float64 loses digits above 2^53, and
// counters can grow beyond that. Otherwise addNumbers adds as float64, and writes the sum as the service does.
func addNumbers(a, b []byte) ([]byte, error) {
	m, errM := strconv.ParseInt(string(a), 10, 64)
	n, errN := strconv.ParseInt(string(b), 10, 64)
	// The sum has overflowed unless the sum moved in the direction of n.
	if sum := m + n; errM == nil && errN == nil && (sum > m) == (n > 0) {
		return strconv.AppendInt(nil, sum, 10), nil
	}
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	if errX != nil || errY != nil || math.IsInf(x+y, 0) {
		return nil, refuse("%s plus %s is out of range: want a sum that a float64 holds", pkey.Show(a), pkey.Show(b))
	}
	return rawjson.AppendDouble(nil, x+y), nil
}

// moveTo moves the value at a pointer to a path: a remove and an add.
func moveTo(body []byte, from string, path []string) ([]byte, error) {
	source, err := userPointer(from)
	if err != nil {
		return nil, fmt.Errorf("move from %q: %w", from, err)
	}
	if len(source) <= len(path) && slices.Equal(source, path[:len(source)]) {
		return nil, refuse("source %q is the path or contains it: want a path elsewhere", from)
	}
	p, err := findExisting(body, source)
	if err != nil {
		return nil, fmt.Errorf("move from %q: %w", from, err)
	}
	// RFC 6902 defines a move as a remove followed by an add, so an index in the path counts the remaining elements.
	rest, err := removeAt(body, source)
	if err != nil {
		return nil, err
	}
	return addAt(rest, path, p.value.Of(body))
}

// splice returns a copy of the body in which parts replace a span. splice changes nothing in place, because the old
// body may be in a page that a reader holds.
func splice(body []byte, at rawjson.Span, parts ...[]byte) []byte {
	size := len(body) - (at.To - at.From)
	for _, part := range parts {
		size += len(part)
	}
	b := append(make([]byte, 0, size), body[:at.From]...)
	for _, part := range parts {
		b = append(b, part...)
	}
	return append(b, body[at.To:]...)
}
