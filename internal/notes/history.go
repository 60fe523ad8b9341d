package notes

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The history of a unit
//
// What operators have done is in one record of the unit, which processors ignore: a text with a JSON array in
// HistoryProperty, newest line last. Each write adds a line and is conditional on the ETag, so operators who write at
// once lose no line. Lines of a later version keep the members that this version does not know.

// HistoryProperty of the record of kind history: the lines.
const HistoryProperty = "changefeed.history"

// The bounds of a history. If it grows beyond them, the oldest lines go; the newest line always stays.
const (
	MaxLines   = 100      // lines
	MaxHistory = 64 << 10 // bytes
	MaxMoves   = 16       // leases whose positions are in a line
	maxBy      = 200      // bytes of the text that says who
	maxToken   = 1 << 10  // bytes of a position; a longer one is left out, because a part of it is another position
)

// Line is an action of an operator.
type Line struct {
	ID     string    `json:"id"` // a name for that single line
	At     time.Time `json:"at"` // by the store's clock
	By     string    `json:"by,omitempty"`
	Why    string    `json:"why,omitempty"`
	Action string    `json:"action"`
	Range  string    `json:"range,omitempty"` // min-max
	Count  int       `json:"count"`           // of leases, records or skipped changes
	Done   int       `json:"done"`            // of these
	Moves  []Move    `json:"moves,omitempty"` // of the first MaxMoves leases
	Key    string    `json:"key,omitempty"`   // of a replay
	// Changes are the first MaxMoves of those that were skipped
	Changes []Skip `json:"changes,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

// Move is another position of a lease.
type Move struct {
	Lease string `json:"lease"`
	From  Target `json:"from"`
	To    Target `json:"to"`
}

// clipped returns a line within its bounds.
func (l Line) clipped() Line {
	l.By, l.Why, l.Failed = clipTo(l.By, maxBy), clip(l.Why), clip(l.Failed)
	l.Moves = slices.Clone(l.Moves[:min(MaxMoves, len(l.Moves))])
	for i := range l.Moves {
		for _, at := range []*Target{&l.Moves[i].From, &l.Moves[i].To} {
			if len(at.Token) > maxToken {
				*at = Target{}
			}
		}
	}
	l.Changes = slices.Clone(l.Changes[:min(MaxMoves, len(l.Changes))])
	return l
}

// AddLine returns the properties of a history with one more line. If a line with its ID is there, because the answer of
// an earlier write was lost, nothing changes, and added is false.
func AddLine(properties map[string]string, l Line) (changed map[string]string, added bool, err error) {
	lines, all, err := readLines(properties)
	if err != nil {
		return nil, false, err
	}
	if slices.ContainsFunc(all, func(old Line) bool { return old.ID == l.ID }) {
		return properties, false, nil
	}
	lines = append(lines, json.RawMessage(text(l.clipped())))
	size := 2
	for _, line := range lines {
		size += len(line) + 1
	}
	for len(lines) > 1 && (len(lines) > MaxLines || size > MaxHistory) {
		size -= len(lines[0]) + 1
		lines = lines[1:]
	}
	return Set(properties, HistoryProperty, text(lines)), true, nil
}

// ReadHistory reads the lines of a history, oldest first.
func ReadHistory(properties map[string]string) ([]Line, error) {
	_, all, err := readLines(properties)
	return all, err
}

// readLines reads the lines as they are stored, and what this version knows of them.
func readLines(properties map[string]string) (lines []json.RawMessage, all []Line, err error) {
	stored := properties[HistoryProperty]
	if stored == "" {
		return nil, nil, nil
	}
	if err := json.Unmarshal([]byte(stored), &lines); err != nil {
		return nil, nil, fmt.Errorf("property %s is no list of lines: %w", HistoryProperty, err)
	}
	all = make([]Line, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal(line, &all[i]); err != nil {
			return nil, nil, fmt.Errorf("line %d in property %s: %w", i+1, HistoryProperty, err)
		}
	}
	return lines, all, nil
}
