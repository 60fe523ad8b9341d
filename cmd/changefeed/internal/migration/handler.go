package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// A handler copies the changes of a unit.
type handler struct {
	*copier

	isFollowing bool          // the unit of deletes: changes of all versions
	checksAfter bool          // deletes are followed, so a created item may be deleted already
	parks       bool          // items that can never be copied go to the dead letters
	fail        func(error)   // ends the copy; without dead letters
	warn        func(string)  // names changes that cannot be followed
	replaces    sync.Map      // leases whose last batch had mostly items that the target had
	warned      sync.Once     // of unplaced
	done        *atomic.Int64 // changes that were handled
}

// Handle implements [feed.Handler].
func (h *handler) Handle(ctx context.Context, b *feed.Batch) error {
	subjects, of := h.subjectsOf(b)
	var err error
	if _, mostlyReplaces := h.replaces.Load(b.LeaseToken); h.isFollowing || mostlyReplaces {
		before := h.written.Load()
		if err = h.findPlaces(ctx, subjects); err == nil {
			err = h.reconcile(ctx, subjects)
		}
		if h.written.Load() == before { // redelivered changes, for one: the short way may be right for the next
			h.replaces.Delete(b.LeaseToken)
		}
	} else {
		err = h.copyNew(ctx, b.LeaseToken, subjects)
	}
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &feed.Failure{Err: err, Outage: true} // no change is at fault
	}
	if failed := h.outcome(b, subjects, of); failed != nil {
		return failed
	}
	h.done.Add(int64(len(b.Changes)))
	return nil
}

// subjectsOf returns the items of a batch, each once, and the item of each change; -1 for a change of no interest.
func (h *handler) subjectsOf(b *feed.Batch) (subjects []*subject, of []int) {
	type name struct {
		key feed.PartitionKey
		id  string
	}
	found := map[name]int{}
	of = make([]int, len(b.Changes))
	for i := range b.Changes {
		ch := &b.Changes[i]
		if of[i] = -1; h.isFollowing && !h.isOfInterest(ch) {
			continue
		}
		seen := document{ch.Body, ch.ETag, ch.Time}
		if h.isFollowing {
			seen = document{body: ch.Previous}
		}
		at, again := found[name{ch.PartitionKey, ch.ID}]
		if !again || h.isFollowing { // each previous version may have had another place
			subjects = append(subjects, &subject{key: ch.PartitionKey, id: ch.ID, session: b.Session})
			at = len(subjects) - 1
			found[name{ch.PartitionKey, ch.ID}] = at
		}
		subjects[at].seen = seen
		subjects[at].isLost = h.isFollowing && len(ch.Previous) == 0
		of[i] = at
	}
	return subjects, of
}

// isOfInterest reports whether a change of all versions may leave a document in the target behind.
func (h *handler) isOfInterest(ch *feed.Change) bool {
	switch {
	case ch.Op == feed.OpReplace:
		return h.mayMove()
	case ch.Op != feed.OpDelete:
		return false
	case len(ch.Previous) == 0 && h.mapper.transform != nil:
		h.unplaced.Add(1)
		h.warned.Do(func() {
			h.warn(fmt.Sprintf("the delete of %s comes without the version before, so its place in the target is unknown: "+
				"want previous images in the source; changefeed compare finds what is left over",
				nameOf(ch.PartitionKey, ch.ID)))
		})
	}
	return true
}

// outcome returns the error of a batch with items that can never be copied.
func (h *handler) outcome(b *feed.Batch, subjects []*subject, of []int) error {
	failed := map[int]error{}
	var first error
	for i, at := range of {
		if at < 0 || subjects[at].err == nil {
			continue
		}
		err := fmt.Errorf("%v: %w", subjects[at], subjects[at].err)
		failed[i] = feed.Poison(err)
		if first == nil {
			first = err
		}
	}
	if first == nil {
		return nil
	}
	if !h.parks {
		h.fail(first)
	}
	h.done.Add(int64(len(b.Changes) - len(failed)))
	return &feed.Failure{Items: failed, Err: first}
}

const maxGroupBytes = 1 << 20 // of a transaction; stores accept 2 MB, including what they add

// A group is a transaction of new items of a partition key of the target.
type group struct {
	key      feed.PartitionKey
	subjects []*subject
	writes   []feed.Write
	bytes    int
}

// copyNew creates the documents of new items. Items that the target has already, and those that have no document or
// several, are reconciled.
func (h *handler) copyNew(ctx context.Context, lease string, subjects []*subject) error {
	versions := make([]document, len(subjects))
	for i, s := range subjects {
		versions[i] = s.seen
	}
	maps, err := h.mapper.apply(ctx, versions, false)
	if err != nil {
		return err
	}
	var rest []*subject
	groups := groupsOf(subjects, maps, &rest)
	var mu sync.Mutex
	err = h.each(ctx, len(groups), func(i int) error {
		g := groups[i]
		err := h.target.commit(ctx, g.key, g.writes)
		switch {
		case err == nil:
			h.written.Add(int64(len(g.writes)))
			if !h.checksAfter {
				return nil
			}
			err = h.dropUnchanged(ctx, g)
			if err != nil {
				return err
			}
		case !errors.Is(err, feed.ErrConflict) && !errors.Is(err, feed.ErrBadRequest):
			return fmt.Errorf("write to the target: %w", err)
		}
		mu.Lock()
		defer mu.Unlock()
		rest = append(rest, g.subjects...)
		return nil
	})
	if err != nil {
		return err
	}
	if !h.checksAfter && 2*len(rest) > len(subjects) {
		h.replaces.Store(lease, true)
	}
	return h.reconcile(ctx, rest)
}

// dropUnchanged leaves in a group only the items that the source has in another version than was written, or not at
// all: a delete may have been handled before the create.
func (h *handler) dropUnchanged(ctx context.Context, g *group) error {
	var changed []*subject
	for _, s := range g.subjects {
		version, err := h.source.read(ctx, s.key, s.id, s.session, false)
		if err != nil {
			return fmt.Errorf("read %v in the source: %w", s, err)
		}
		if version.etag != s.seen.etag {
			changed = append(changed, s)
		}
	}
	g.subjects = changed
	return nil
}

// groupsOf groups the subjects that become a single document by the keys of the target. The others are added to rest.
func groupsOf(subjects []*subject, maps []mapped, rest *[]*subject) (groups []*group) {
	open := map[feed.PartitionKey]*group{}
	for i, s := range subjects {
		if maps[i].err != nil || len(maps[i].documents) != 1 {
			*rest = append(*rest, s)
			continue
		}
		w := maps[i].documents[0]
		g := open[w.key]
		if g == nil || len(g.writes) == service.MaxBatch || g.bytes+len(w.body) > maxGroupBytes {
			g = &group{key: w.key}
			open[w.key], groups = g, append(groups, g)
		}
		g.subjects = append(g.subjects, s)
		g.writes = append(g.writes, feed.Write{Op: feed.WriteCreate, Body: w.body})
		g.bytes += len(w.body)
	}
	return slices.Clip(groups)
}
