package changefeed

import (
	"bytes"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/delivery"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/service"
)

// What the engine of internal/delivery knows of options, pages and changes: their numbers and keys. The changes
// themselves stay here.

// rules are the options as the engine needs them.
func (t *tenure) rules() delivery.Rules {
	o := t.r.opts
	rng := t.r.random("delivery " + t.lease.Token)
	_, hasBox := o.DeadLetters.(feed.LetterBox)
	return delivery.Rules{
		Concurrency: o.Concurrency, InOrder: o.Concurrency == 1 && !o.hasPolicy(), MaxItems: o.MaxItems, MaxBytes: o.MaxBytes,
		Wait: o.MaxWait, MaxAttempts: o.MaxAttempts, MaxAge: o.MaxAge, CanPark: o.DeadLetters != nil, HoldKeys: o.HoldKeys,
		HasBox: hasBox, ByHand: o.Manual,
		CanReadKeys: t.r.canReadKeys(), MaxAside: o.MaxSetAside, MaxAsideBytes: notes.MaxAsideBytes, AsideBytes: notes.AsideBytes, KeyPages: keyPages,
		MaxHeld: notes.MaxHeld, MaxHeldBytes: notes.MaxHeldBytes, HeldBytes: notes.HeldBytes,
		Backoff: func(failures int) time.Duration { return t.r.backoff(rng, failures) },
		After:   positionAfter,
		Name: func(c *delivery.Change) string {
			return letterID(o.Mode, c.LSN, c.Place, changeOf(c).ID)
		},
	}
}

// keyPages is how many keys of a lease are read again at once.
const keyPages = 4

// canReadKeys reports whether the source can read a single key again, and find out which lease has it after a split.
func (r *run) canReadKeys() bool {
	_, ok := r.source.(feed.Locator)
	return ok
}

// warnOfKeys says at the start that no key can be set aside, if one may have to be.
func (r *run) warnOfKeys() {
	if r.canReadKeys() || r.opts.Concurrency == 1 && !r.opts.hasPolicy() {
		return
	}
	r.hooks.Error(&feed.Error{Origin: feed.OriginSource, Err: fmt.Errorf(
		"%w: a %T is no Locator: the changes behind one that fails wait in memory, and if they fill BufferItems (%d) or BufferBytes (%d), their lease waits",
		feed.ErrNoKeyReads, r.source, r.opts.BufferItems, r.opts.BufferBytes)})
}

// changeOf is the change that the engine knows by its place.
func changeOf(c *delivery.Change) *feed.Change { return &c.Page.Of.(*readPage).Changes[c.Index] }

func changesOf(b *delivery.Batch) []feed.Change {
	changes := make([]feed.Change, len(b.Changes))
	for i, c := range b.Changes {
		changes[i] = *changeOf(c)
	}
	return changes
}

// meta is what the engine is told of a change.
func meta(changes []feed.Change) func(i int) delivery.Meta {
	return func(i int) delivery.Meta {
		c := &changes[i]
		return delivery.Meta{LSN: c.LSN, Key: string(c.PartitionKey), Size: changeSize(c)}
	}
}

// readPage is a page whose changes the engine has. A letter that is handed over again is one, too.
type readPage struct {
	feed.Page
	letter *feed.DeadLetter
}

// positionAfter is the position after an LSN, if tokens are LSNs in quotes, as the service's are, and reading has come so far.
func positionAfter(end delivery.Position, lsn int64) (delivery.Position, bool) {
	read := end.(feed.Position)
	if last, isLSN := service.LSN(read.Token); !isLSN || read.Token != service.Token(last) || last < lsn {
		return nil, false
	}
	return feed.Position{Token: service.Token(lsn), Start: read.Start}, true
}

// shed gives the changes of a page that are still needed memory of their own, and gives up the rest.
func (d *dispatcher) shed(p *delivery.Page) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := p.Of.(*readPage)
	kept := make([]feed.Change, len(of.Changes))
	p.Kept(func(i int) {
		kept[i] = of.Changes[i]
		kept[i].Body, kept[i].Previous = bytes.Clone(kept[i].Body), bytes.Clone(kept[i].Previous)
	})
	of.Changes = kept
}

// newBatchError describes the failure of some changes.
func newBatchError(changes []feed.Change, attempt int, failing time.Time, err error) *feed.BatchError {
	e := &feed.BatchError{
		Attempt: attempt, Failing: failing, Count: len(changes), Err: err,
		First: changes[0].LSN, Last: changes[len(changes)-1].LSN, Key: changes[0].PartitionKey,
	}
	for _, c := range changes[:min(len(changes), fold.MaxNamed)] {
		e.IDs = append(e.IDs, c.ID)
	}
	return e
}
