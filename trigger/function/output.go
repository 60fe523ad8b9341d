package function

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// returnName is the name of the output binding whose value is the ReturnValue.
const returnName = "$return"

// writeOutputs writes the documents of an invocation, one after the other.
func (h *Handler) writeOutputs(ctx context.Context, r *result) error {
	values := h.valuesOf(r)
	for _, o := range h.function.Outputs {
		documents, err := documentsOf(values[o.Name], o.IsBinary)
		if err != nil {
			return fmt.Errorf("output %s: %w", o.Name, err)
		}
		to := h.outputs[o.Name]
		if to == nil && len(documents) > 0 {
			return fmt.Errorf("output %s has no container", o.Name)
		}
		for i, d := range documents {
			if err := to.Upsert(ctx, d); err != nil {
				return fmt.Errorf("output %s: write document %d of %d: %w", o.Name, i+1, len(documents), err)
			}
		}
	}
	return nil
}

// nameStrangeOutputs warns once of outputs that the function does not have: they may be misspelled, and are ignored.
func (h *Handler) nameStrangeOutputs(ctx context.Context, r *result) {
	var known, strange []string
	for _, o := range h.function.Outputs {
		known = append(known, o.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Outputs)) {
		if !slices.Contains(known, name) {
			strange = append(strange, name)
		}
	}
	if len(strange) == 0 {
		return
	}
	h.strange.Do(func() {
		h.host.opts.Log.WarnContext(ctx, "the answer has an output that function.json does not have, and it is ignored, "+
			"as on Azure", "function", h.function.Name, "outputs", strange, "want", known)
	})
}

// valuesOf returns the values of the outputs by their names. Without an output $return, an object that is returned has
// values of outputs too, and these count.
func (h *Handler) valuesOf(r *result) map[string]json.RawMessage {
	values := map[string]json.RawMessage{}
	hasReturn := false
	for _, o := range h.function.Outputs {
		values[o.Name] = r.Outputs[o.Name]
		hasReturn = hasReturn || o.Name == returnName
	}
	if hasReturn {
		values[returnName] = r.ReturnValue
		return values
	}
	var returned map[string]json.RawMessage
	if json.Unmarshal(r.ReturnValue, &returned) != nil {
		return values // no object
	}
	for _, o := range h.function.Outputs {
		if value, ok := returned[o.Name]; ok {
			values[o.Name] = value
		}
	}
	return values
}

// documentsOf returns the documents of a value: an object, the JSON text of one, or an array of these. A text that is
// valid base64 is decoded first, as Azure does, unless the output is binary.
func documentsOf(value json.RawMessage, isBinary bool) ([]json.RawMessage, error) {
	value = bytes.TrimSpace(value)
	if len(value) > 0 && value[0] == '"' {
		text, err := textOf(value)
		if err != nil {
			return nil, err
		}
		if decoded, err := decodeBase64(text); err == nil && !isBinary {
			text = string(decoded)
		}
		value = bytes.TrimSpace([]byte(text))
		if !json.Valid(value) {
			return nil, errors.New("the text is no JSON: want an object, an array of objects, or the JSON of these")
		}
	}
	if len(value) == 0 || string(value) == "null" {
		return nil, nil
	}
	if value[0] != '[' {
		document, err := documentOf(value)
		return []json.RawMessage{document}, err
	}
	var all []json.RawMessage
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, err
	}
	for i := range all {
		document, err := documentOf(all[i])
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		all[i] = document
	}
	return all, nil
}

// documentOf returns an object, or the object whose JSON text a value is.
func documentOf(value json.RawMessage) (json.RawMessage, error) {
	if value[0] == '"' {
		text, err := textOf(value)
		if err != nil {
			return nil, err
		}
		value = bytes.TrimSpace([]byte(text))
	}
	if len(value) == 0 || value[0] != '{' || !json.Valid(value) {
		return nil, errors.New("want an object, or the JSON of an object")
	}
	return value, nil
}

func textOf(value json.RawMessage) (text string, err error) {
	err = json.Unmarshal(value, &text)
	return text, err
}

// decodeBase64 decodes base64 as .NET does, which skips white space.
func decodeBase64(text string) ([]byte, error) {
	text = strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "").Replace(text)
	return base64.StdEncoding.DecodeString(text)
}
