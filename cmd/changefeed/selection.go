package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/changeline"
	"github.com/millrace/changefeed/internal/terminal"
	"github.com/millrace/changefeed/internal/usage"
)

// Flags that several commands share, about which changes are read: a key, a range, a start.
// Each is a type with its own Set, so that a wrong value is refused when the command line
// is parsed, with the forms that are accepted.

// selection is the flags that choose documents by their key.
type selection struct {
	key keyFlag
	rng rangeFlag
}

// register adds the flags to a command.
func (s *selection) register(cmd *cobra.Command) {
	s.rng.value = changefeed.FullRange()
	cmd.Flags().Var(&s.key, "key", `only one partition key: text such as London, or JSON such as [5] or ["a","b"]`)
	cmd.Flags().Var(&s.rng, "range", "only a range of effective partition keys, min-max in hex such as 05C1-0BF3")
}

// options are those of a pull that reads what the flags choose. The range is a parameter of
// Pull itself.
func (s *selection) options(mode changefeed.Mode) changefeed.PullOptions {
	return changefeed.PullOptions{ReadOptions: changefeed.ReadOptions{Mode: mode, Key: s.key.value}}
}

// keyFlag is a partition key on the command line.
type keyFlag struct{ value changefeed.PartitionKey }

// String is the key as JSON.
func (k *keyFlag) String() string { return string(k.value) }

// Type is the flag's placeholder in the help.
func (k *keyFlag) Type() string { return "key" }

// Set reads a JSON array, or else takes the text as it is: most keys are one string, and
// quotes within quotes are a nuisance in a shell.
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
			// JSON has no undefined. The service writes a component that a document
			// lacks as {}, so an empty object is that.
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

// rangeFlag is a range of effective partition keys on the command line.
type rangeFlag struct {
	value changefeed.Range
	cut   string // the text, if a table has cut its edges
}

// String is min-max; empty for all keys.
func (r *rangeFlag) String() string {
	if r.value == changefeed.FullRange() {
		return ""
	}
	return r.value.String()
}

// Type is the flag's placeholder in the help.
func (r *rangeFlag) Type() string { return "range" }

// Set reads min-max. It accepts an ellipsis in an edge, because people copy ranges from
// tables that have shortened them.
func (r *rangeFlag) Set(text string) (err error) {
	if r.cut = ""; strings.Contains(text, terminal.Ellipsis) {
		r.cut, text = text, strings.ReplaceAll(text, terminal.Ellipsis, "")
	}
	r.value, err = changefeed.ParseRange(text)
	return err
}

// complete finds the edges that a table has shortened, among those of the partitions. If
// several fit, the flag is refused.
func (r *rangeFlag) complete(ctx context.Context, source changefeed.Source) error {
	if r.cut == "" {
		return nil
	}
	parts, err := source.Partitions(ctx)
	if err != nil {
		return err
	}
	// An edge that was not cut is taken as it is; a cut edge must be the beginning of
	// one edge only.
	whole := func(text string) (string, bool) {
		begin, isCut := strings.CutSuffix(strings.ToUpper(text), terminal.Ellipsis)
		if !isCut {
			return begin, true
		}
		found, edge := map[string]bool{}, ""
		for _, partition := range parts {
			for _, e := range []string{partition.Range.Min, partition.Range.Max} {
				if strings.HasPrefix(e, begin) {
					found[e], edge = true, e
				}
			}
		}
		return edge, len(found) == 1
	}
	lo, hi, _ := strings.Cut(r.cut, "-") // was read so by Set
	from, one := whole(lo)
	to, other := whole(hi)
	if !one || !other {
		return usage.Flag("range", r.cut, "a range of partitions, or the whole text of the edges, as changefeed leases writes them into a pipe")
	}
	r.value = changefeed.Range{Min: from, Max: to}
	return nil
}

// startFlag is the start of a feed on the command line.
type startFlag struct{ value changefeed.Start }

// String is the start as Set reads it; empty before Set was called.
func (s *startFlag) String() string {
	if s.value.IsZero() {
		return ""
	}
	return s.value.String()
}

// Type is the flag's placeholder in the help.
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

// metaFlag adds the flag for the form of a change on a line.
func metaFlag(cmd *cobra.Command, form *changeline.Form) {
	cmd.Flags().BoolVar(&form.Meta, "meta", false, "write each change with its metadata, not the document alone")
}
