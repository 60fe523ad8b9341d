package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// JSON as YAML, so that readers of YAML 1.1 and 1.2 read the same values: they disagree about plain texts such as
// no and 1:30, and about numbers such as 1e3.

// toYAML returns the YAML of a JSON text, with the members in the same order. Of members with one name the last counts,
// as in most readers of JSON, because YAML does not allow two.
func toYAML(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	node, err := readNode(d)
	if err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return yaml.Marshal(node)
}

// readNode reads the next value.
func readNode(d *json.Decoder) (*yaml.Node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := t.(type) {
	case json.Delim:
		if v == '{' {
			return readMembers(d)
		}
		return readElements(d)
	case string:
		return textNode(v), nil
	case json.Number:
		return numberNode(v.String()), nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// readMembers reads the rest of an object.
func readMembers(d *json.Decoder) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	places := map[string]int{} // of the values, by the names of the members
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, err := readNode(d)
		if err != nil {
			return nil, err
		}
		text := name.(string) // the decoder returns the names of members as strings
		if i, twice := places[text]; twice {
			node.Content[i] = value
			continue
		}
		places[text] = len(node.Content) + 1
		node.Content = append(node.Content, textNode(text), value)
	}
	_, err := d.Token()
	return node, err
}

// readElements reads the rest of an array.
func readElements(d *json.Decoder) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.SequenceNode}
	for d.More() {
		value, err := readNode(d)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, value)
	}
	_, err := d.Token()
	return node, err
}

// plainText matches texts that every reader takes for a text without quotes, except for words.
var plainText = regexp.MustCompile(`^[\pL_/][\pL\pN _./@+-]*$`)

// words are texts that a reader takes for something else, in any case of their letters.
var words = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"}

// textNode returns a text, in quotes unless every reader takes it for a text.
func textNode(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Style: yaml.DoubleQuotedStyle}
	if plainText.MatchString(text) && !strings.HasSuffix(text, " ") && !slices.Contains(words, strings.ToLower(text)) {
		node.Style = 0
	}
	return node
}

// numberNode returns a number. Readers of YAML 1.1 know an exponent only with a sign, after a number with a point.
func numberNode(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: text}
	mantissa, exponent, ok := strings.Cut(strings.ToLower(text), "e")
	if !ok {
		if strings.Contains(text, ".") {
			node.Tag = "!!float"
		}
		return node
	}
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if exponent[0] != '-' && exponent[0] != '+' {
		exponent = "+" + exponent
	}
	node.Tag, node.Value = "!!float", mantissa+"e"+exponent
	return node
}
