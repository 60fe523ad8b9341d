package contract

import (
	"bytes"
	"encoding/json"
)

// ParseOutcome returns the outcome that a JSON text describes by the members of the message failed, for a batch of n
// changes. If the text is no JSON object, or has none of these members, or says that all changes are done, the outcome
// is nil. If the text is no JSON, or a member is wrong, the error is a [*BreachError].
func ParseOutcome(text []byte, n int) (outcome, wrong error) {
	if text = bytes.TrimSpace(text); !json.Valid(text) {
		return nil, breach(text, "want JSON")
	}
	if text[0] != '{' {
		return nil, nil
	}
	m, err := decodeMembers(text)
	if err != nil {
		return nil, err
	}
	var said struct {
		Done *int `json:"done"` // 0 says that no change is done
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, err
	}
	isWhole := said.Done != nil && m.Done == n && len(m.Items) == 0
	saysNothing := said.Done == nil && len(m.Items) == 0 && m.Error == "" && !m.Poison && !m.Outage && m.After == 0
	if isWhole || saysNothing {
		return nil, nil
	}
	return m.failure(text, n)
}
