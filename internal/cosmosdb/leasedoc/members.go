package leasedoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Documents of leases are shared with processors of other makers and versions. Whoever
// rewrites such a document must leave in it what it does not know, or it takes the
// memory of the others away.

// object is a JSON object whose members keep order and text, which a map would lose:
// documents are written as .NET writes them, and members of others come back unchanged.
type object []member

// member is a member of an object: its name without escapes, its value as it is written.
type member struct {
	name  string
	value json.RawMessage
}

// usualMembers is how many members a document has, or a little less.
const usualMembers = 20

// nameOf is a name as a string. The names of .NET's documents, which are nearly all that come, need no
// memory.
func nameOf(name []byte) string {
	switch string(name) {
	case memberID:
		return memberID
	case memberVersion:
		return memberVersion
	case memberETag:
		return memberETag
	case memberToken:
		return memberToken
	case memberFeedRange:
		return memberFeedRange
	case memberOwner:
		return memberOwner
	case memberContinuation:
		return memberContinuation
	case memberProperties:
		return memberProperties
	case memberTimestamp:
		return memberTimestamp
	case memberTs:
		return memberTs
	case memberMode:
		return memberMode
	}
	return string(name)
}

// parseObject reads an object in one pass; of a repeated name, the last value, as
// everywhere here. Of a broken text it returns the members before the break, for the
// listing. Values refer to the text.
func parseObject(text []byte) (object, error) {
	s := rawjson.Strict(text)
	if s.Peek() != '{' {
		return nil, errors.New("not a JSON object")
	}
	o := make(object, 0, usualMembers)
	for _, key := range s.Object() {
		if value := s.Value(); !s.Bad() {
			o.put(nameOf(key.Name()), value.Of(text))
		}
	}
	if !s.End() {
		return o, fmt.Errorf("not JSON, near byte %d", s.Pos())
	}
	return o, nil
}

// put adds a member or replaces its value.
func (o *object) put(name string, value json.RawMessage) {
	for i := range *o {
		if (*o)[i].name == name {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{name, value})
}

// get returns the value of a member, nil when absent or null: .NET writes unset members
// as null.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name && string(m.value) != "null" {
			return m.value
		}
	}
	return nil
}

// getFold is get that accepts a name in another case: Java writes feedRange, .NET
// FeedRange.
func (o object) getFold(name string) json.RawMessage {
	if v := o.get(name); v != nil {
		return v
	}
	for _, m := range o {
		if strings.EqualFold(m.name, name) && string(m.value) != "null" {
			return m.value
		}
	}
	return nil
}

// has reports whether a member is present, even as null.
func (o object) has(name string) bool {
	for _, m := range o {
		if m.name == name {
			return true
		}
	}
	return false
}

// text returns the object without spaces between members.
func (o object) text() []byte {
	size := len("{}")
	for _, m := range o {
		size += len(`"":,`) + len(m.name) + len(m.value)
	}
	b := append(make([]byte, 0, size), '{')
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, m.name)
		b = append(b, ':')
		b = append(b, m.value...)
	}
	return append(b, '}')
}

func quote(s string) json.RawMessage { return rawjson.AppendString(nil, s) }
