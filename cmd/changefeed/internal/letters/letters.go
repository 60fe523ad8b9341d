// Package letters works on the dead letters of a deployment unit for an operator: the package finds, shows and
// removes the selected letters, and lets the unit's processors handle them again.
package letters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// A Place is the place of letters: a file of this host, or a container.
type Place struct {
	File    string
	Address place.Address // if File is empty
}

// Parse parses the argument ADDRESS or FILE. A file must exist; otherwise a mistyped address would count as the name
// of a new file.
func Parse(text string) (Place, error) {
	if place.IsAddress(text) {
		at, err := place.Parse("ADDRESS", text)
		if err != nil {
			return Place{}, usage.Error{Err: err}
		}
		return Place{Address: at}, nil
	}
	if _, err := os.Stat(text); err != nil {
		return Place{}, fmt.Errorf("FILE is %s: %w: want a file of letters, or %s, or --container NAME with a context", text,
			errors.Unwrap(err), place.AddressForms)
	}
	return Place{File: text}, nil
}

// A Query selects letters. With zero IDs and Key, all letters of the unit are selected. Each of IDs may be the
// beginning of an ID, if only a single letter has this beginning.
type Query struct {
	Name   string // of the unit
	Source string // address of the container that the unit reads; needed if several units have the name
	Key    feed.PartitionKey
	IDs    []string
	Sole   bool // letters of several units are a mistake

	// Leases is the address of the lease container in which the unit must be if it has no letters, so that a wrong
	// name is no empty list; by default leases, beside the letters, if that is there.
	Leases string

	By admin.Options // who acts, and why, for the history of the unit
}

// Seq yields letters, and ends at an error.
type Seq = iter.Seq2[feed.DeadLetter, error]

// Read returns the selected letters, and a text for people about their place. If an ID matches no letter, or several,
// an error follows the letters.
func (q Query) Read(ctx context.Context, o *place.Opener, at Place) (from string, letters Seq, err error) {
	if at.File != "" {
		all := q.filterMeant(deadletters.ReadFile(ctx, at.File, q.Name))
		return at.File + ", a file of this host alone", q.orUnknown(ctx, o, at, all), nil
	}
	boxes, from, err := q.openBoxes(ctx, o, at.Address)
	if err != nil {
		return "", nil, err
	}
	return from, q.orUnknown(ctx, o, at, q.filterMeant(boxes.Letters(ctx, q.Key))), nil
}

// orUnknown is the error for an unknown unit after letters that turn out to be none. The letters of a key, or of IDs,
// say nothing about the name.
func (q Query) orUnknown(ctx context.Context, o *place.Opener, at Place, letters Seq) Seq {
	if q.Key != "" || len(q.IDs) > 0 {
		return letters
	}
	return func(yield func(feed.DeadLetter, error) bool) {
		for l, err := range letters {
			if !yield(l, err) || err != nil {
				return
			}
			letters = nil
		}
		if letters == nil {
			return
		}
		if err := q.checkName(ctx, o, at); err != nil {
			yield(feed.DeadLetter{}, err)
		}
	}
}

// checkName refuses a name that no unit has, and lists the units that have letters in the place. Without a flag the
// leases may be elsewhere, or the user may not read them: then only the letters say whether the name is right.
func (q Query) checkName(ctx context.Context, o *place.Opener, at Place) error {
	var unknown error
	if at.File == "" && q.Name != unit.Unnamed {
		var known bool
		if known, unknown = q.hasLeases(ctx, o, at.Address); known {
			return nil
		}
	}
	names, err := UnitNames(ctx, o, at)
	switch {
	case q.Name == unit.Unnamed && err == nil:
		return usage.Missing{Err: usage.Flag("name", q.Name, "/ and the name of the function, for the letters of a unit "+
			"without a name: "+cmp.Or(strings.Join(names, ", "), "there are no letters here"))}
	case err != nil || len(names) == 0:
		return cmp.Or(unknown, err)
	}
	return usage.Missing{Err: usage.Error{Err: fmt.Errorf("--name is %s: no such unit has letters here: want one of %s, or "+
		"--leases with the leases of a unit without letters", q.Name, strings.Join(names, ", "))}}
}

// hasLeases reports whether the unit has leases. The error is nil if nobody can say so, because the leases are where
// no flag leads.
func (q Query) hasLeases(ctx context.Context, o *place.Opener, at place.Address) (known bool, unknown error) {
	leases, err := q.leasesOf(o, at)
	if err != nil {
		return false, err
	}
	r := Redrive{Query: q, Leases: leases, Opener: o}
	_, _, err = r.findUnit(ctx)
	switch {
	case errors.As(err, new(unit.UnknownError)):
		return false, err
	case err == nil, errors.As(err, new(usage.Error)): // units of this name read several containers
		return true, nil
	case q.Leases != "":
		return false, err
	}
	return false, nil
}

// filterMeant yields the selected letters. among yields them immediately, because a box may contain more letters than
// fit in memory. So among can report missing IDs only at the end.
func (q Query) filterMeant(letters Seq) Seq {
	return func(yield func(feed.DeadLetter, error) bool) {
		found := finds{}
		for l, err := range letters {
			if err == nil && (q.Key != "" && l.Change.PartitionKey != q.Key ||
				len(q.IDs) > 0 && !found.noteLetter(q.IDs, l.ID)) {
				continue
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
		if err := found.checkArgument(q.IDs, q.Name); err != nil {
			yield(feed.DeadLetter{}, err)
		}
	}
}

// gather reads letters to their end. gather drops their documents, which may be large, because all letters are in
// memory at once.
func gather(letters Seq) (all []feed.DeadLetter, err error) {
	for l, err := range letters {
		if err != nil {
			return nil, err
		}
		l.Change.Body, l.Change.Previous, l.Stack = nil, nil, ""
		all = append(all, l)
	}
	return all, nil
}

// gatherNamed gathers letters. If letters of several keys have the same ID, the result is an error.
func (q Query) gatherNamed(letters Seq) ([]feed.DeadLetter, error) {
	all, err := gather(letters)
	if err != nil || len(q.IDs) == 0 {
		return all, err
	}
	first := map[string]feed.PartitionKey{}
	for _, l := range all {
		if other, twice := first[l.ID]; twice {
			return nil,
				usage.Error{Err: fmt.Errorf("ID is %s: letters of several keys have it, among them %s and %s: "+
					"want --key", l.ID, other, l.Change.PartitionKey)}
		}
		first[l.ID] = l.Change.PartitionKey
	}
	return all, nil
}

// Drop removes the selected letters, and returns their number. If any named letter is missing, none is removed. If a
// crash had cut off the last line of a file, Drop calls warn. Before the first removal, Drop calls approve with the
// number, and removes nothing unless the answer is true.
func (q Query) Drop(ctx context.Context, o *place.Opener, at Place, warn func(text string),
	approve func(letters int) (bool, error),
) (n int, err error) {
	if at.File == "" {
		boxes, _, err := q.openBoxes(ctx, o, at.Address)
		if err != nil {
			return 0, err
		}
		all := q.orUnknown(ctx, o, at, q.filterMeant(boxes.Letters(ctx, q.Key)))
		return q.dropLetters(ctx, boxes, all, q.warning(at, warn), approve, q.recordDrop(o, at))
	}
	b, err := deadletters.File(at.File, q.Name)
	if errors.Is(err, deadletters.ErrInUse) {
		return 0, fmt.Errorf("%w: its processor has it open: stop that first", err)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = cmp.Or(err, b.Close()) }()
	if torn := b.Torn(); torn > 0 {
		warn(fmt.Sprintf("the last line of %s was cut off, %d bytes: a crash had interrupted it", at.File, torn))
	}
	all := q.orUnknown(ctx, o, at, q.filterMeant(b.Letters(ctx, q.Key)))
	return q.dropLetters(ctx, b, all, q.warning(at, warn), approve, q.recordDrop(o, at))
}

// dropLetters looks up all letters before removing the first. A box has no transactions: if a removal fails half-way,
// the remaining letters stay. If held letters of a key are removed, the key stays held, and no letter names the key any
// more. If the failed letter of a held key is removed, no retry reaches the held ones. drop calls warn about both.
func (q Query) dropLetters(ctx context.Context, b box, letters Seq, warn warning,
	approve func(letters int) (bool, error), record dropNoter,
) (int, error) {
	doomed, err := q.gatherNamed(letters)
	if err != nil || len(doomed) == 0 {
		return 0, err
	}
	if sure, err := approve(len(doomed)); !sure || err != nil {
		return len(doomed), err
	}
	for done, l := range doomed {
		if err := b.Remove(ctx, l.Change.PartitionKey, l.ID); err != nil {
			return 0, errors.Join(err, record(ctx, doomed, done, err))
		}
	}
	warnOfKeys(doomed, warn)
	warnOfHeld(ctx, b, doomed, warn)
	return len(doomed), record(ctx, doomed, len(doomed), nil)
}

// warnOfKeys warns of the keys of which held letters were removed.
func warnOfKeys(removed []feed.DeadLetter, warn warning) {
	var keys []feed.PartitionKey
	for _, l := range removed {
		if key := l.Change.PartitionKey; l.Disposition == feed.DispositionHeld && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	switch len(keys) {
	case 0:
	case 1:
		warn(fmt.Sprintf("a letter of %s was held: the key stays held until ", keys[0]), keys[0])
	default:
		const most = 3 // there may be a thousand
		named := fmt.Sprint(keys[:min(most, len(keys))])
		named = named[1 : len(named)-1] // without the brackets of a slice
		if len(keys) > most {
			named += " " + terminal.Ellipsis
		}
		warn(fmt.Sprintf("letters of %d keys were held, %s: each key stays held until ", len(keys), named), "")
	}
}

// warning writes a text that ends with the command that releases a key; an empty key is any.
type warning func(text string, key feed.PartitionKey)

// warning returns the warning about letters in a place.
func (q Query) warning(at Place, warn func(text string)) warning {
	commands := q.commands(at)
	return func(text string, key feed.PartitionKey) {
		var keys []string
		if key != "" {
			keys = append(keys, string(key))
		}
		warn(text + commands.Complete("changefeed dlq release --key KEY", keys...))
	}
}

// commands returns the commands about the unit whose letters are in a place.
func (q Query) commands(at Place) unit.Commands {
	c := unit.Commands{Name: q.Name, Source: q.Source, Leases: q.Leases, Letters: at.File}
	if at.File == "" {
		c.Letters = at.Address.String()
		c.Leases = cmp.Or(c.Leases, at.Address.Beside(unit.DefaultContainer).String())
	}
	c.Leases = cmp.Or(c.Leases, unit.UnknownLeases)
	return c
}

// warnOfHeld warns of each key whose held letters are left, while its failed letters were removed.
func warnOfHeld(ctx context.Context, b box, removed []feed.DeadLetter, warn warning) {
	var seen []feed.PartitionKey
	for _, l := range removed {
		key := l.Change.PartitionKey
		if l.Disposition == feed.DispositionHeld || slices.Contains(seen, key) {
			continue
		}
		seen = append(seen, key)
		held, failed := 0, 0
		for left, err := range b.Letters(ctx, key) {
			switch {
			case err != nil: // the letters are removed all the same
				return
			case left.Disposition == feed.DispositionHeld:
				held++
			default:
				failed++
			}
		}
		if held > 0 && failed == 0 {
			were, them := "were", "them"
			if held == 1 {
				were, them = "was", "it"
			}
			warn(fmt.Sprintf("%s of %s %s held behind what is dropped, and no retry reaches %s: the key stays held until ",
				terminal.Count(held, "letter"), key, were, them), key)
		}
	}
}
