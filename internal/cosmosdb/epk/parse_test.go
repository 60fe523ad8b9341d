package epk

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Parse reads a key with encoding/json, for tests. Keys of clients are read by
// internal/cosmosdb/pkey.
func Parse(key string) (Components, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(key), &raw); err != nil {
		return nil, err
	}
	c := make(Components, len(raw))
	for i, r := range raw {
		switch r[0] {
		case 'n':
			c[i] = Null()
		case 't', 'f':
			c[i] = Bool(r[0] == 't')
		case '"':
			var s string
			if err := json.Unmarshal(r, &s); err != nil {
				return nil, err
			}
			c[i] = String(s)
		case '{':
			if string(r) != "{}" {
				return nil, fmt.Errorf("component %d is %s", i, r)
			}
		default:
			f, err := strconv.ParseFloat(string(r), 64)
			if err != nil {
				return nil, err
			}
			c[i] = Number(f)
		}
	}
	return c, nil
}
