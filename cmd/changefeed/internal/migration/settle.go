package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Candidates: places whose records differ. They are looked at again before they are called different.

// A candidate is a place whose records differ.
type candidate struct {
	at    spot
	both  *both
	items []*subject // of the source that may have the place

	source, target record // of the last look
	hasSource      bool
	hasTarget      bool
	seen           []print   // earlier versions of the source, since the first look
	since          time.Time // since when the source is as it is
	conflict       *collision
	why            string // the item cannot be copied
	isSettled      bool
	etag           string // of the target, before its owner was looked for in the whole source; empty if it was not
}

const (
	lookAgain    = 250 * time.Millisecond
	mostLooks    = 4 // times the patience, for an item that changes all the time
	keptVersions = 64
)

// settle looks at the places whose records differ, until each is settled, and notes the differences.
func (w *comparison) settle(ctx context.Context, places map[spot]*both) error {
	var open []*candidate
	for at, b := range places {
		if b.isSame() {
			continue
		}
		c := &candidate{at: at, both: b}
		for _, s := range b.source {
			c.items = append(c.items, &subject{key: s.ItemKey, id: s.Item})
		}
		open = append(open, c)
	}
	all := slices.Clone(open)
	begun := time.Now()
	isRepaired := !w.Repair
	for len(open) > 0 {
		if err := w.each(ctx, len(open), func(i int) error { return w.lookAgain(ctx, open[i], begun) }); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(c *candidate) bool { return c.isSettled })
		if len(open) == 0 && !isRepaired {
			isRepaired = true
			again, err := w.repair(ctx, all)
			if err != nil {
				return err
			}
			open = again
			begun = time.Now()
			continue // looks again at what was repaired
		}
		if len(open) > 0 {
			if err := pause.For(ctx, lookAgain); err != nil {
				return err
			}
		}
	}
	for _, c := range all {
		w.noteCandidate(c)
	}
	return nil
}

// lookAgain looks at a place once, the target first.
func (w *comparison) lookAgain(ctx context.Context, c *candidate, begun time.Time) error {
	has, err := w.target.read(ctx, c.at.key, c.at.id, "", true)
	if err != nil {
		return fmt.Errorf("read %v in the target: %w", c.at, err)
	}
	c.hasTarget = has.exists()
	if c.hasTarget {
		c.target = w.recordIn(has, c.at.key, c.at.id)
		w.addItemOf(c, has)
	}
	if err := w.lookAtSource(ctx, c); err != nil {
		return err
	}
	patient := time.Since(c.since) < w.Patience && time.Since(begun) < mostLooks*w.Patience
	c.isSettled = c.isSame() || c.conflict != nil || c.why != "" || !patient
	return nil
}

// addItemOf adds the item of the source that a document of the target names by its id and by the partition key of the
// source.
func (w *comparison) addItemOf(c *candidate, has document) {
	key, err := w.source.keyOf(has.body)
	if err != nil || slices.ContainsFunc(c.items, func(s *subject) bool { return s.key == key && s.id == c.at.id }) {
		return
	}
	c.items = append(c.items, &subject{key: key, id: c.at.id})
}

// lookAtSource reads the items that may have the place.
func (w *comparison) lookAtSource(ctx context.Context, c *candidate) error {
	before, had := c.source, c.hasSource
	c.hasSource, c.conflict, c.why = false, nil, ""
	var owner *subject
	for _, item := range c.items {
		now, err := w.source.read(ctx, item.key, item.id, "", false)
		if err != nil && !errors.Is(err, feed.ErrBadRequest) {
			return fmt.Errorf("read %v in the source: %w", item, err)
		}
		maps, err := w.mapper.apply(ctx, []document{now}, false)
		if err != nil {
			return err
		}
		if maps[0].err != nil {
			c.why = maps[0].err.Error()
		}
		for _, d := range maps[0].documents {
			if d.spot != c.at {
				continue
			}
			if c.hasSource {
				c.conflict = &collision{c.at, owner, item}
			}
			c.hasSource, c.source, owner = true, w.recordOf(d, item.key, item.id, 0), item
		}
	}
	if c.since.IsZero() || c.hasSource != had || c.source.Print != before.Print {
		c.since = time.Now()
	}
	if c.hasSource && len(c.seen) < keptVersions && !slices.Contains(c.seen, c.source.Print) {
		c.seen = append(c.seen, c.source.Print)
	}
	return nil
}

// isSame reports whether both sides agree, or have agreed since the first look: then the target follows.
func (c *candidate) isSame() bool {
	if !c.hasSource || !c.hasTarget {
		return c.hasSource == c.hasTarget
	}
	b := both{target: &c.target, source: []record{c.source}}
	return b.isSame() || c.source.Print != c.target.Print && slices.Contains(c.seen, c.target.Print)
}

// repair brings candidates that differ up to date, and returns those that are to be looked at again.
func (w *comparison) repair(ctx context.Context, all []*candidate) (open []*candidate, err error) {
	var subjects []*subject
	for _, c := range all {
		if c.isSame() || c.conflict != nil || c.why != "" {
			continue
		}
		open = append(open, c)
		for _, item := range c.items {
			subjects = append(subjects, &subject{key: item.key, id: item.id})
		}
	}
	if err := w.reconcile(ctx, subjects); err != nil {
		return nil, err
	}
	for _, c := range open {
		c.isSettled, c.since, c.seen = false, time.Time{}, nil
	}
	if err := w.findOwners(ctx, open); err != nil {
		return nil, err
	}
	return open, w.each(ctx, len(open), func(i int) error {
		c := open[i]
		if c.hasSource || !c.hasTarget || w.hidesOwners() {
			return nil
		}
		return w.removeSurplus(ctx, c)
	})
}

// removeSurplus deletes a document that no item of the source has, unless somebody writes it meanwhile.
func (w *comparison) removeSurplus(ctx context.Context, c *candidate) error {
	has, err := w.target.read(ctx, c.at.key, c.at.id, "", true)
	if err != nil || !has.exists() {
		return err
	}
	if err := w.lookAtSource(ctx, c); err != nil || c.hasSource || c.etag != "" && c.etag != has.etag {
		return err
	}
	err = w.target.commit(ctx, c.at.key, []feed.Write{{Op: feed.WriteDelete, ID: c.at.id, IfMatch: has.etag}})
	if errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrNotFound) {
		return nil // it is looked at again
	}
	if err == nil {
		w.deleted.Add(1)
	}
	return err
}

// noteCandidate notes what is known of a place now, for the sums and for the list.
func (w *comparison) noteCandidate(c *candidate) {
	d := Difference{Key: string(c.at.key), ID: c.at.id}
	b := c.both
	wasCopied := len(b.source) > 0
	if b.target = nil; c.hasTarget {
		b.target = &c.target
	}
	if c.conflict == nil {
		b.source = nil
	}
	if c.hasSource && c.conflict == nil {
		b.source = []record{c.source}
		d.ItemKey, d.Item = string(c.source.ItemKey), c.source.Item
		if c.isSame() && c.hasTarget {
			b.source[0].Print = c.target.Print // the target follows
		}
	}
	switch {
	case c.conflict != nil:
		d.What, d.Why = conflicting, c.conflict.Error()
	case c.why != "" && !wasCopied && w.result.Uncopied > 0:
		return // readSource has noted the item
	case c.why != "":
		d.What, d.Why = uncopied, c.why
	case c.isSame():
		return
	case !c.hasTarget:
		d.What = missing
	case !c.hasSource:
		d.What = surplus
	default:
		d.What = different
	}
	w.note(d)
}
