package hostfile

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Schema returns a JSON Schema of the file, with which editors complete and check it.
func Schema(kinds []Kind) ([]byte, error) {
	all := (&reader{kinds: kinds}).allOptions()
	var units []any
	for _, k := range kinds {
		properties := schemaOf(k.Options)
		properties[k.Key] = valueSchema(k)
		units = append(units, map[string]any{
			"type": "object", "required": []string{k.Key}, "properties": properties, "additionalProperties": false,
		})
	}
	schema := map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "The units of a host",
		"type":                 "object",
		"required":             []string{unitsKey},
		"additionalProperties": false,
		"properties": map[string]any{
			versionKey: map[string]any{"description": "of the form of the file; 1 if it is missing", "const": 1},
			defaultsKey: map[string]any{
				"description": "options of all units that have none of their own", "type": "object",
				"properties": schemaOf(all), "additionalProperties": false,
			},
			unitsKey: map[string]any{
				"description": "units, each with one handler", "type": "array", "minItems": 1,
				"items": map[string]any{"oneOf": units},
			},
		},
	}
	text, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return append(text, '\n'), nil
}

// valueSchema returns the schema of the value of a handler.
func valueSchema(k Kind) map[string]any {
	text := map[string]any{"type": "string"}
	if !k.IsList {
		return map[string]any{"description": k.About, "type": "string"}
	}
	list := map[string]any{
		"type": "array", "minItems": 1, "items": map[string]any{"type": []string{"string", "number", "boolean"}},
	}
	return map[string]any{"description": k.About, "oneOf": []any{text, list}}
}

// schemaOf returns the schemas of options by their keys.
func schemaOf(options []Option) map[string]any {
	properties := map[string]any{}
	for _, o := range options {
		about := strings.ReplaceAll(o.About, "`", "")
		if !o.IsSecret {
			properties[o.Name] = optionSchema(o, about)
			continue
		}
		properties[o.Name] = map[string]any{
			"description": about + "; an environment variable", "type": "string", "pattern": variablePattern,
		}
		properties[o.Name+fileEnding] = map[string]any{"description": about + "; path of a file", "type": "string"}
	}
	return properties
}

// variablePattern is the pattern of a text that is an environment variable.
const variablePattern = `^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`

// optionSchema returns the schema of an option, or of an environment variable in place of its value.
func optionSchema(o Option, about string) map[string]any {
	variable := map[string]any{"type": "string", "pattern": variablePattern}
	switch {
	case len(o.Words) > 0:
		return map[string]any{"description": about, "anyOf": []any{map[string]any{"enum": o.Words}, variable}}
	case o.Type != "string":
		return map[string]any{"description": about, "anyOf": []any{map[string]any{"type": o.Type}, variable}}
	}
	text := map[string]any{"type": []string{"string", "number"}}
	if o.IsList {
		list := map[string]any{"type": "array", "minItems": 1, "items": text}
		return map[string]any{"description": about, "anyOf": []any{text, list}}
	}
	text["description"] = about
	return text
}
