package leasedoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Lease documents are shared with processors of other vendors and versions. A processor that rewrites such a document
// must keep the members that it does not know; otherwise the other processors lose their data.

// object is a JSON object whose members keep their order and text, which a map would lose. So documents are written
// as .NET writes them, and unknown members stay unchanged.
type object []member

// member is a member of an object: its name without escapes, and its value as written.
type member struct {
	name  string
	value json.RawMessage
}

// usualMembers is about the number of members in a document.
const usualMembers = 20

// nameOf returns a name as a string. For the names of .NET's documents, which are nearly all names, nameOf allocates
// no memory.
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

// parseObject reads an object in a single pass. If a name repeats, the last value counts, as in all of this project.
// If the text is broken, the members before the fault are returned, for the listing. Values share the text's memory.
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

// get returns the value of a member, or nil if the member is missing or null, because .NET writes unset members as
// null.
func (o object) get(name string) json.RawMessage {
	for _, m := range o {
		if m.name == name && string(m.value) != "null" {
			return m.value
		}
	}
	return nil
}

// getFold is get without regard to the case of the name, because Java writes feedRange and .NET FeedRange.
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

// toJSON returns the JSON of the object, without spaces between members.
func (o object) toJSON() []byte {
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
