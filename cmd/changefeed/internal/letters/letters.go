// Package letters works on the dead letters of a deployment unit for an operator: it finds those that are meant, shows
// them, removes them, and has the unit's processors handle them again.
package letters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/host/place"
	"github.com/millrace/changefeed/internal/host/usage"
)

// A Place is where letters are: in a file of this host, or in a container.
type Place struct {
	File    string
	Address place.Address // where File is empty
}

// Parse reads the argument ADDRESS or FILE. A file must be there: a mistyped address would else be the name of a new
// file.
func Parse(text string) (Place, error) {
	if place.IsAddress(text) {
		at, err := place.Parse("ADDRESS", text)
		if err != nil {
			return Place{}, usage.Error{Err: err}
		}
		return Place{Address: at}, nil
	}
	if _, err := os.Stat(text); err != nil {
		return Place{}, fmt.Errorf("FILE is %s: %w; or want an address, %s", text, errors.Unwrap(err), place.AddressForms)
	}
	return Place{File: text}, nil
}

// A Query says which letters are meant. Its zero IDs and Key mean all of the unit. Each of IDs may be the beginning of
// an ID that no other letter has.
type Query struct {
	Name   string // of the unit
	Source string // the address of the container that the unit reads, where several units have the name
	Key    feed.PartitionKey
	IDs    []string
	Sole   bool // letters of several units are a mistake
}

// Seq are letters, until an error.
type Seq = iter.Seq2[feed.DeadLetter, error]

// Read returns the letters that are meant, and for people where they are. An ID that no letter has, or that several
// letters begin with, is an error after the letters.
func (q Query) Read(ctx context.Context, o *place.Opener, at Place) (from string, letters Seq, err error) {
	if at.File != "" {
		return at.File + ", a file of this host alone", q.among(deadletters.ReadFile(ctx, at.File, q.Name)), nil
	}
	boxes, from, err := q.open(ctx, o, at.Address)
	if err != nil {
		return "", nil, err
	}
	return from, q.among(boxes.Letters(ctx, q.Key)), nil
}

// among are the letters that are meant, of some that may be. They go on one by one, because a box may hold more than
// fit in memory: so what is missing is known only at the end.
func (q Query) among(letters Seq) Seq {
	return func(yield func(feed.DeadLetter, error) bool) {
		found := finds{}
		for l, err := range letters {
			if err == nil && (q.Key != "" && l.Change.PartitionKey != q.Key || len(q.IDs) > 0 && !found.note(q.IDs, l.ID)) {
				continue
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
		if err := found.check(q.IDs, q.Name); err != nil {
			yield(feed.DeadLetter{}, err)
		}
	}
}

// gather reads letters to their end. Their documents, which may be large, are left out: all of them are in memory at
// once.
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

// named gathers letters, and refuses an ID that letters of several keys have.
func (q Query) named(letters Seq) ([]feed.DeadLetter, error) {
	all, err := gather(letters)
	if err != nil || len(q.IDs) == 0 {
		return all, err
	}
	first := map[string]feed.PartitionKey{}
	for _, l := range all {
		if other, twice := first[l.ID]; twice {
			return nil, usage.Error{Err: fmt.Errorf("ID is %s: letters of several keys have it, among them %s and %s: want --key", l.ID, other, l.Change.PartitionKey)}
		}
		first[l.ID] = l.Change.PartitionKey
	}
	return all, nil
}

// Drop removes the letters that are meant, and returns their number. Either all that are named are there, or none is
// removed. It warns of a file whose last line a crash had cut off.
func (q Query) Drop(ctx context.Context, o *place.Opener, at Place, warn func(text string)) (n int, err error) {
	if at.File == "" {
		boxes, _, err := q.open(ctx, o, at.Address)
		if err != nil {
			return 0, err
		}
		return q.drop(ctx, boxes, warn)
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
	return q.drop(ctx, b, warn)
}

// drop looks all letters up before it removes the first. A box has no transactions: a removal that fails half-way
// leaves the letters after it. A key whose held letters go stays held: warn says so, because no letter names it any more.
func (q Query) drop(ctx context.Context, b box, warn func(text string)) (int, error) {
	doomed, err := q.named(q.among(b.Letters(ctx, q.Key)))
	if err != nil {
		return 0, err
	}
	for _, l := range doomed {
		if err := b.Remove(ctx, l.Change.PartitionKey, l.ID); err != nil {
			return 0, err
		}
	}
	if i := slices.IndexFunc(doomed, func(l feed.DeadLetter) bool { return l.Disposition == feed.DispositionHeld }); i >= 0 {
		warn(fmt.Sprintf("a letter of %s was held: the key stays held until changefeed dlq release --key", doomed[i].Change.PartitionKey))
	}
	return len(doomed), nil
}
