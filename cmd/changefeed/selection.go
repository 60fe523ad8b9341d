package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
)

// selection is the flags that choose documents by their key.
type selection struct {
	key keyFlag
	rng rangeFlag
}

func (s *selection) register(cmd *cobra.Command) {
	s.rng.value = changefeed.FullRange()
	cmd.Flags().Var(&s.key, "key", `only one partition key: text such as London, or JSON such as [5] or ["a","b"]`)
	cmd.Flags().Var(&s.rng, "range", "only a range of effective partition keys, min-max in hex such as 05C1-0BF3")
}

// options read what the flags choose.
func (s *selection) options(mode changefeed.Mode) changefeed.PullOptions {
	return changefeed.PullOptions{ReadOptions: changefeed.ReadOptions{Mode: mode, Key: s.key.value}}
}

// keyFlag is a partition key on the command line.
type keyFlag struct{ value changefeed.PartitionKey }

// String is the key as JSON.
func (k *keyFlag) String() string { return string(k.value) }

// Type is shown in the help.
func (k *keyFlag) Type() string { return "key" }

// Set reads a JSON array, or else takes the text as it is.
func (k *keyFlag) Set(text string) error {
	if !strings.HasPrefix(text, "[") {
		k.value = changefeed.Key(text)
		return nil
	}
	var parts []any
	if err := json.Unmarshal([]byte(text), &parts); err != nil || len(parts) == 0 {
		return errors.New(`want text such as London, or a JSON array such as [5] or ["a","b"]`)
	}
	for i, part := range parts {
		switch v := part.(type) {
		case map[string]any:
			if len(v) > 0 {
				return fmt.Errorf("component %d is an object: want a string, number, boolean, null or {}", i+1)
			}
			parts[i] = changefeed.Undefined
		case []any:
			return fmt.Errorf("component %d is an array: want a string, number, boolean, null or {}", i+1)
		}
	}
	k.value = changefeed.Key(parts...)
	return nil
}

// rangeFlag is a range on the command line.
type rangeFlag struct{ value changefeed.Range }

// String is min-max; empty for all keys.
func (r *rangeFlag) String() string {
	if r.value == changefeed.FullRange() {
		return ""
	}
	return r.value.String()
}

// Type is shown in the help.
func (r *rangeFlag) Type() string { return "range" }

// Set reads min-max.
func (r *rangeFlag) Set(text string) (err error) {
	r.value, err = changefeed.ParseRange(text)
	return err
}

// startFlag is where a feed begins.
type startFlag struct{ value changefeed.Start }

// String is what Set has read; empty when it has read nothing.
func (s *startFlag) String() string {
	if s.value.IsZero() {
		return ""
	}
	return s.value.String()
}

// Type is shown in the help.
func (s *startFlag) Type() string { return "beginning|now|time" }

// Set reads beginning, now, a time, or a duration before now.
func (s *startFlag) Set(text string) (err error) {
	if ago, err := time.ParseDuration(text); err == nil && ago > 0 {
		s.value = changefeed.FromAgo(ago)
		return nil
	}
	if s.value, err = changefeed.ParseStart(text); err != nil {
		return errors.New("want beginning, now, a time such as 2026-01-31T15:04:05Z, or how long ago, such as 15m")
	}
	return nil
}

// isSystem tells the members that a store adds to documents.
func isSystem(name string) bool {
	switch name {
	case "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn":
		return true
	}
	return false
}

// withoutSystem is a document as its writer had it: the members that are not the store's,
// in their order, with the text of their values.
func withoutSystem(body []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	plain := []byte{'{'}
	for d.More() {
		begin := d.InputOffset()
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		if isSystem(name.(string)) {
			continue
		}
		if len(plain) > 1 {
			plain = append(plain, ',')
		}
		plain = append(plain, bytes.TrimLeft(body[begin:d.InputOffset()], ", \t\r\n")...)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	return append(plain, '}'), nil
}
