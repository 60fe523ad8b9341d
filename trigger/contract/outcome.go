package contract

import (
	"bytes"
	"encoding/json"
)

// ParseOutcome returns the failure that a JSON text describes by the members of the message failed, for a batch of n
// changes. If the text is no JSON object, or has none of these members, the outcome is nil: the batch is done. If a
// member is wrong, the error is a [*BreachError].
func ParseOutcome(text []byte, n int) (outcome, wrong error) {
	if text = bytes.TrimSpace(text); !bytes.HasPrefix(text, []byte("{")) || !json.Valid(text) {
		return nil, nil
	}
	m, err := decodeMembers(text)
	if err != nil {
		return nil, err
	}
	if m.Done == 0 && len(m.Items) == 0 && m.Error == "" && !m.Poison && !m.Outage && m.After == 0 {
		return nil, nil
	}
	outcome, breached := m.failure(text, n)
	if breached != nil {
		return nil, breached
	}
	return outcome, nil
}
