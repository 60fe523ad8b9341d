// Package arg reads values of a command line: a partition key, a range, a start, a mode, a time to live. Each type is a
// flag's value, whose Set refuses a wrong text with the forms that are accepted, and whose Type stands for it in the help.
package arg

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Key is a partition key; empty when none was given.
type Key struct{ Value feed.PartitionKey }

// String is the key as JSON.
func (k *Key) String() string { return string(k.Value) }

// Type is key.
func (k *Key) Type() string { return "key" }

// Set reads a JSON array, or else takes the text as it is: most keys are one string, and
// quotes within quotes are a nuisance in a shell.
func (k *Key) Set(text string) (err error) {
	if !strings.HasPrefix(text, "[") {
		k.Value, err = feed.NewKey(text)
		return err
	}
	var parts []any
	if err := json.Unmarshal([]byte(text), &parts); err != nil || len(parts) == 0 {
		return errors.New(`want text such as London, or a JSON array such as [5] or ["a","b"]`)
	}
	for i, part := range parts {
		switch v := part.(type) {
		case map[string]any:
			// JSON has no undefined. The service writes a component that a document
			// lacks as {}, so an empty object is that.
			if len(v) > 0 {
				return fmt.Errorf("component %d is an object: want a string, number, boolean, null or {}", i+1)
			}
			parts[i] = feed.Undefined
		case []any:
			return fmt.Errorf("component %d is an array: want a string, number, boolean, null or {}", i+1)
		}
	}
	k.Value, err = feed.NewKey(parts...)
	return err
}

// Start is the start of a feed.
type Start struct{ Value feed.Start }

// String is the start as Set reads it; empty when none was given.
func (s *Start) String() string {
	if s.Value.IsZero() {
		return ""
	}
	return s.Value.String()
}

// Type lists the forms.
func (s *Start) Type() string { return "beginning|now|time" }

// Words are the values that a shell can complete.
func (s *Start) Words() []string { return []string{"beginning", "now"} }

// Set reads beginning, now, a time, or a duration before now.
func (s *Start) Set(text string) (err error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		s.Value = feed.FromAgo(ago)
		return nil
	}
	if s.Value, err = feed.ParseStart(text); err != nil {
		return errors.New("want beginning, now, a time such as 2026-01-31T15:04:05Z, or how long ago, such as 15m")
	}
	return nil
}

// Mode is the mode of a feed; its zero value is the latest version.
type Mode struct{ Value feed.Mode }

// The words for the modes.
const (
	latest = "latest"
	all    = "all"
)

// IsAll reports whether all versions and deletes are wanted.
func (m *Mode) IsAll() bool { return m.Value == feed.AllVersionsAndDeletes }

// String is the mode's word.
func (m *Mode) String() string {
	if m.IsAll() {
		return all
	}
	return latest
}

// Type lists the words.
func (m *Mode) Type() string { return latest + "|" + all }

// Words are the values that a shell can complete.
func (m *Mode) Words() []string { return []string{latest, all} }

// Set reads a word.
func (m *Mode) Set(text string) error {
	switch text {
	case latest:
		m.Value = feed.LatestVersion
	case all:
		m.Value = feed.AllVersionsAndDeletes
	default:
		return errors.New("want " + latest + " or " + all)
	}
	return nil
}

// TTL is a time to live.
type TTL struct {
	Seconds *int // nil turns it off
}

// String is the number of seconds.
func (t *TTL) String() string {
	if t.Seconds == nil {
		return "off"
	}
	return strconv.Itoa(*t.Seconds)
}

// Type is seconds.
func (t *TTL) Type() string { return "seconds" }

// Set reads seconds, as the service writes them, or a duration.
func (t *TTL) Set(text string) error {
	n, err := strconv.Atoi(text)
	// A number without a unit is seconds and no duration, so the number is tried first.
	if d, derr := time.ParseDuration(text); err != nil && derr == nil && d == d.Truncate(time.Second) {
		n, err = int(d/time.Second), nil
	}
	if err != nil || n == 0 || n < docstore.NoDefaultTTL {
		return errors.New("want whole seconds such as 3600, a duration such as 1h, or -1")
	}
	t.Seconds = &n
	return nil
}
