// Package arg reads values of a command line: a partition key, a range, a start, a mode, a time to live. Each type is
// the value of a flag. Set refuses a wrong text with the accepted forms, and Type stands for the value in the help.
package arg

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Key is a partition key; empty if none was given.
type Key struct{ Value feed.PartitionKey }

// String returns the key as JSON.
func (k *Key) String() string { return string(k.Value) }

// Type returns key.
func (k *Key) Type() string { return "key" }

// Set reads a JSON array or a JSON string, and takes any other text as a string: most keys are a single string, and
// quotes within quotes are inconvenient in a shell.
func (k *Key) Set(text string) (err error) {
	if strings.HasPrefix(text, `"`) {
		var one string
		if err := json.Unmarshal([]byte(text), &one); err == nil {
			text = one
		}
		k.Value, err = feed.NewKey(text)
		return err
	}
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
			// JSON has no undefined. If a document lacks a component, the service writes the component as {}, so an
			// empty object means undefined.
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
type Start struct {
	Value feed.Start
	given string // the text that Set read
}

// String returns the start as it was given; empty if none was given.
func (s *Start) String() string {
	if s.Value.IsZero() {
		return ""
	}
	return cmp.Or(s.given, s.Value.String())
}

// Type lists the forms.
func (s *Start) Type() string { return "beginning|now|TIME" }

// Words returns the values that a shell can complete.
func (s *Start) Words() []string { return []string{"beginning", "now"} }

// Set reads beginning, now, a time, or a duration before now.
func (s *Start) Set(text string) (err error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		s.Value, s.given = feed.FromAgo(ago), text
		return nil
	}
	if s.Value, err = feed.ParseStart(text); err != nil {
		return errors.New("want beginning, now, a time such as 2026-01-31T15:04:05Z, or how long ago, such as 15m")
	}
	s.given = text
	return nil
}

// Mode is the mode of a feed; the zero value is the latest version.
type Mode struct{ Value feed.Mode }

// The words for the modes.
const (
	latest = "latest"
	all    = "all"
)

// IsAll reports whether the mode is all versions and deletes.
func (m *Mode) IsAll() bool { return m.Value == feed.AllVersionsAndDeletes }

// String returns the mode's word.
func (m *Mode) String() string {
	if m.IsAll() {
		return all
	}
	return latest
}

// Type lists the words.
func (m *Mode) Type() string { return latest + "|" + all }

// Words returns the values that a shell can complete.
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
	Seconds *int // nil is off
}

// String returns the number of seconds.
func (t *TTL) String() string {
	if t.Seconds == nil {
		return "off"
	}
	return strconv.Itoa(*t.Seconds)
}

// Type returns seconds.
func (t *TTL) Type() string { return "seconds" }

// Set reads seconds, as the service writes them, or a duration.
func (t *TTL) Set(text string) error {
	n, err := strconv.Atoi(text)
	// A number without a unit is seconds and no duration, so Set tries the number first.
	if d, derr := time.ParseDuration(text); err != nil && derr == nil && d > 0 && d == d.Truncate(time.Second) {
		n, err = int(d/time.Second), nil
	}
	if err != nil || n == 0 || n < docstore.NoDefaultTTL {
		return errors.New("want whole seconds such as 3600, a duration such as 1h, or -1")
	}
	t.Seconds = &n
	return nil
}
