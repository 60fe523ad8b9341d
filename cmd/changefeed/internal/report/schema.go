package report

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Known is a text that is null if it is empty: programs need not ask whether a member is there.
type Known string

// MarshalJSON implements [json.Marshaler].
func (k Known) MarshalJSON() ([]byte, error) {
	if k == "" {
		return []byte("null"), nil
	}
	return marshal(string(k))
}

// A Kind describes a kind of objects.
type Kind struct {
	Name  string
	About string
	Of    Value // any value of the type
}

// A Field is a member of the objects of a kind.
type Field struct {
	Name     string
	About    string // from the tag about
	Optional bool   // left out when it has no meaning
	Nullable bool   // null when it is unknown
	of       reflect.Type
}

// Fields returns the members of the objects of a kind, in their order.
func (k Kind) Fields() []Field { return fieldsOf(reflect.TypeOf(k.Of)) }

// fieldsOf returns the members of a struct, or of the struct that a pointer leads to, with those of embedded structs.
func fieldsOf(t reflect.Type) (all []Field) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for f := range t.Fields() {
		if f.Anonymous {
			all = append(all, fieldsOf(f.Type)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		all = append(all, Field{
			Name: name, About: f.Tag.Get("about"), of: f.Type,
			Optional: strings.Contains(options, "omit"),
			Nullable: f.Type.Kind() == reflect.Pointer || f.Type == reflect.TypeFor[Known](),
		})
	}
	return all
}

// SchemaOf returns the JSON Schema (2020-12) of the lines that commands write with -o json.
func SchemaOf(kinds []Kind) ([]byte, error) {
	defs, any := object{}, []object{}
	for _, k := range kinds {
		of := structSchema(reflect.TypeOf(k.Of))
		of["description"] = k.About
		properties := of["properties"].(object)
		properties["kind"], properties["schema"] = object{"const": k.Name}, object{"const": Schema}
		of["required"] = append([]string{"kind", "schema"}, of["required"].([]string)...)
		defs[k.Name] = of
		any = append(any, object{"$ref": "#/$defs/" + k.Name})
	}
	text, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "A line that changefeed writes with -o json",
		"oneOf":   any,
		"$defs":   defs,
	}, "", "  ")
	return append(text, '\n'), err
}

// object is a JSON object.
type object map[string]any

// structSchema returns the schema of a struct.
func structSchema(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range fieldsOf(t) {
		of := typeSchema(f.of)
		if f.About != "" {
			of["description"] = f.About
		}
		properties[f.Name] = of
		if !f.Optional {
			required = append(required, f.Name)
		}
	}
	return object{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	}
}

// typeSchema returns the schema of a type.
func typeSchema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{} // any JSON
	case t == reflect.TypeFor[Known]():
		return nullable(object{"type": "string"})
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(typeSchema(t.Elem()))
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return object{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": typeSchema(t.Elem())}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}
	}
	return object{"not": object{}} // no value is valid, so that a test fails
}

// nullable returns the schema of a value that may be null.
func nullable(of object) object {
	if name, ok := of["type"].(string); ok {
		of["type"] = []string{name, "null"}
	}
	return of
}

// NamesOf returns the names of the members of all kinds, for a flag that selects some.
func NamesOf(kinds []Kind) (names []string) {
	for _, k := range kinds {
		for _, f := range k.Fields() {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	return names
}
