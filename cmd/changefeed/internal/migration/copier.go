package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// A copier brings items of the target up to date.
type copier struct {
	source, target *side
	mapper         *mapper
	documents      *items.Target // the target, for queries
	turns          chan struct{} // as many as requests may be sent at once

	written, deleted, unplaced atomic.Int64
}

// newCopier makes a copier that sends so many requests at once.
func newCopier(c *containers, m *mapper, writers int) *copier {
	return &copier{source: c.source, target: c.target, mapper: m, turns: make(chan struct{}, writers)}
}

// A subject is an item of the source that has changed.
type subject struct {
	key feed.PartitionKey
	id  string

	seen     document // a version that the target or the change may have; the places of this version are read too
	session  string   // of the read of the change
	isLost   bool     // the version before is unknown, so other places of the item must be looked for
	spots    []spot   // where the target has documents of the item
	attempts int

	err error
}

// String names the item for people.
func (s *subject) String() string { return nameOf(s.key, s.id) }

// each calls f for each number below n, many at once, and returns the first error.
func (c *copier) each(ctx context.Context, n int, f func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	for i := range n {
		select {
		case c.turns <- struct{}{}:
		case <-ctx.Done():
			work.Wait()
			return context.Cause(ctx)
		}
		work.Go(func() {
			defer func() { <-c.turns }()
			if err := f(i); err != nil {
				cancel(err)
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
}

// The pauses before an item is tried again that somebody else has written meanwhile.
const (
	firstAgain = 5 * time.Millisecond
	maxAgain   = 12 // attempts
)

// reconcile brings subjects up to date. Each subject has its own error if it can never be copied. The returned error
// concerns the work as a whole, and passes.
func (c *copier) reconcile(ctx context.Context, subjects []*subject) error {
	old, err := c.placesOf(ctx, subjects)
	if err != nil {
		return err
	}
	for wait := firstAgain; len(subjects) > 0; wait *= 2 {
		looks, err := c.look(ctx, subjects, old)
		if err != nil {
			return err
		}
		again, err := c.writeLooks(ctx, looks)
		if err != nil {
			return err
		}
		if len(again) == 0 {
			return nil
		}
		if again[0].attempts++; again[0].attempts > maxAgain {
			return fmt.Errorf("%v is written by somebody else in the target, again and again", again[0])
		}
		subjects, old = c.keep(subjects, old, again)
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
	return nil
}

// keep returns the subjects that are tried again, with their places.
func (c *copier) keep(subjects []*subject, old [][]spot, again []*subject) (_ []*subject, kept [][]spot) {
	for i, s := range subjects {
		if slices.Contains(again, s) {
			for _, at := range s.spots {
				if !slices.Contains(old[i], at) {
					old[i] = append(old[i], at)
				}
			}
			kept = append(kept, old[i])
		}
	}
	return again, kept
}

// placesOf returns the places of the versions that were seen.
func (c *copier) placesOf(ctx context.Context, subjects []*subject) ([][]spot, error) {
	versions := make([]document, len(subjects))
	for i, s := range subjects {
		versions[i] = s.seen
	}
	maps, err := c.mapper.apply(ctx, versions, true)
	if err != nil {
		return nil, err
	}
	places := make([][]spot, len(subjects))
	for i, m := range maps {
		places[i] = slices.Clone(subjects[i].spots)
		// A version that has no place was never copied.
		for _, w := range m.documents {
			if !slices.Contains(places[i], w.spot) {
				places[i] = append(places[i], w.spot)
			}
		}
	}
	return places, nil
}

// A look is an item with the documents of both sides. The target was read first.
type look struct {
	*subject

	spots []spot
	has   []document // of the target, at the spots
	now   document   // of the source
	wants []wanted
}

// look reads the places of subjects in the target, and then the subjects in the source. An item with a new place that
// was not read is read again.
func (c *copier) look(ctx context.Context, subjects []*subject, places [][]spot) (done []*look, err error) {
	open := make([]*look, len(subjects))
	for i, s := range subjects {
		open[i] = &look{subject: s, spots: slices.Clone(places[i])}
	}
	for len(open) > 0 {
		if err := c.readBoth(ctx, open); err != nil {
			return nil, err
		}
		var further []*look
		for _, l := range open {
			if l.addSpots(); len(l.has) < len(l.spots) && l.err == nil {
				further = append(further, l)
			} else {
				done = append(done, l)
			}
		}
		open = further
	}
	return done, nil
}

// addSpots adds the places that the item is to have.
func (l *look) addSpots() {
	for _, w := range l.wants {
		if !slices.Contains(l.spots, w.spot) {
			l.spots = append(l.spots, w.spot)
		}
	}
}

// readBoth reads the target, and then the source.
func (c *copier) readBoth(ctx context.Context, looks []*look) error {
	err := c.each(ctx, len(looks), func(i int) (err error) {
		l := looks[i]
		l.has = make([]document, len(l.spots))
		for j, at := range l.spots {
			if l.has[j], err = c.target.read(ctx, at.key, at.id, "", true); err != nil {
				return fmt.Errorf("read %v in the target: %w", at, err)
			}
		}
		if l.now, err = c.source.read(ctx, l.key, l.id, l.session, false); err != nil {
			return fmt.Errorf("read %v in the source: %w", l.subject, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// An account answers for an item of a missing container as for a missing item.
	if slices.ContainsFunc(looks, func(l *look) bool { return !l.now.exists() }) {
		if _, err := c.source.Concrete().Partitions(ctx); err != nil {
			return fmt.Errorf("see whether the source exists: %w", err)
		}
	}
	versions := make([]document, len(looks))
	for i, l := range looks {
		versions[i] = l.now
	}
	maps, err := c.mapper.apply(ctx, versions, false)
	for i, m := range maps {
		looks[i].wants, looks[i].err = m.documents, m.err
	}
	return err
}

// writeLooks writes the versions of the source, and returns the subjects whose places were written meanwhile.
func (c *copier) writeLooks(ctx context.Context, looks []*look) (again []*subject, err error) {
	var mu sync.Mutex
	err = c.each(ctx, len(looks), func(i int) error {
		l := looks[i]
		if l.err != nil {
			return nil
		}
		known := len(l.subject.spots)
		err := c.writeLook(ctx, l)
		isOld := false
		if err == nil && len(l.subject.spots) > known {
			isOld, err = c.isOld(ctx, l)
		}
		switch {
		case isOld, errors.Is(err, feed.ErrConflict), errors.Is(err, feed.ErrNotFound):
			mu.Lock()
			defer mu.Unlock()
			again = append(again, l.subject)
		case isLasting(err):
			l.err = err
		default:
			return err
		}
		return nil
	})
	return again, err
}

// isOld reports whether the source has another version than was created. No etag guards a create: the delete of the
// version may have been handled after the target was read, when there was nothing to delete yet.
func (c *copier) isOld(ctx context.Context, l *look) (bool, error) {
	if c.source.retention == 0 { // no delete is followed
		return false, nil
	}
	version, err := c.source.read(ctx, l.key, l.id, l.session, false)
	if err != nil {
		return false, fmt.Errorf("read %v in the source: %w", l.subject, err)
	}
	return version.etag != l.now.etag, nil
}

// isLasting reports whether an error stays the same if the write is repeated.
func isLasting(err error) bool {
	_, collides := errors.AsType[*collision](err)
	return collides || errors.Is(err, feed.ErrBadRequest)
}

// writeLook writes the differences of an item.
func (c *copier) writeLook(ctx context.Context, l *look) error {
	for i, at := range l.spots {
		w := feed.Write{Op: feed.WriteDelete, ID: at.id, IfMatch: l.has[i].etag}
		if j := slices.IndexFunc(l.wants, func(w wanted) bool { return w.spot == at }); j >= 0 {
			if l.has[i].exists() && c.mapper.isSame(l.wants[j], l.has[i]) {
				continue
			}
			w.Op, w.Body, w.ID = feed.WriteReplace, l.wants[j].body, ""
			if !l.has[i].exists() {
				w.Op, w.IfMatch = feed.WriteCreate, ""
			}
		} else if !l.has[i].exists() {
			continue
		}
		if l.has[i].exists() {
			switch other, err := c.ownerOf(ctx, l, i); {
			case err != nil:
				return err
			case other != nil && w.Op == feed.WriteDelete:
				continue // now the place of another item
			case other != nil:
				return &collision{at, l.subject, other}
			}
		}
		if err := c.target.commit(ctx, at.key, []feed.Write{w}); err != nil {
			return fmt.Errorf("write %v: %w", at, reasonOf(err))
		}
		switch w.Op {
		case feed.WriteDelete:
			c.deleted.Add(1)
		case feed.WriteCreate:
			l.subject.spots = append(l.subject.spots, at)
			c.written.Add(1)
		default:
			c.written.Add(1)
		}
	}
	return nil
}

// reasonOf returns the reason of a refused write with a single operation.
func reasonOf(err error) error {
	if w, ok := errors.AsType[*feed.WriteError](err); ok {
		return w.Err
	}
	return err
}

// A collision means that two items of the source have the same place in the target.
type collision struct {
	at         spot
	one, other *subject
}

// Error names both items.
func (e *collision) Error() string {
	return fmt.Sprintf("conflict: %v and %v of the source have the same place in the target, %v; the target keeps the "+
		"second: give them different ids with a transform, or take another partition key", e.one, e.other, e.at)
}

// ownerOf returns another item of the source to which a document of the target belongs; nil if there is none. A copied
// document names its item by its id and by the partition key of the source, unless a transform has changed these.
func (c *copier) ownerOf(ctx context.Context, l *look, i int) (*subject, error) {
	has := l.has[i]
	key, err := c.source.keyOf(has.body)
	if err != nil || key == l.key && l.spots[i].id == l.id {
		return nil, nil
	}
	other := &subject{key: key, id: l.spots[i].id}
	version, err := c.source.read(ctx, other.key, other.id, l.session, false)
	if errors.Is(err, feed.ErrBadRequest) || err == nil && !version.exists() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %v in the source: %w", other, err)
	}
	maps, err := c.mapper.apply(ctx, []document{version}, false)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(maps[0].documents, func(w wanted) bool { return w.spot == l.spots[i] }) {
		return other, nil
	}
	return nil, nil
}
