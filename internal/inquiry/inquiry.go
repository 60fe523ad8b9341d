// Package inquiry makes requests to the processors of a unit, and waits for the outcomes. A request is a record in the
// lease store; package notes describes how it is written, served and answered.
package inquiry

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
)

// ErrNotServed means: no instance has served a request.
var ErrNotServed = errors.New("not served")

// ErrUnknownAction means that the owner does not know what is asked, because it is of an older version.
var ErrUnknownAction = errors.New("the owner is of an older version, and does not know the action")

// Request is what a caller asks.
type Request interface {
	// Token returns the token of the record: the same for equal requests, so that they are served once.
	Token() string
	// Anew returns the properties of the record, added to its other properties, without those of an earlier outcome.
	Anew(others map[string]string) map[string]string
}

// Ask makes a request and waits for the outcome. If ctx ends before, Ask withdraws the request and returns an error
// wrapping [ErrNotServed] and the cause of ctx. who completes the sentence "want a running instance", for the case that
// no instance has answered.
func Ask(ctx context.Context, leases feed.LeaseStore, q Request, who string) (notes.Outcome, error) {
	return newInquiry(leases, q, who).await(ctx)
}

// AskAs is [Ask] with a name for the caller in the record. A caller who asks again under one name is served once.
func AskAs(ctx context.Context, leases feed.LeaseStore, q Request, name string) (notes.Outcome, error) {
	a := newInquiry(leases, q, "")
	a.name = name
	return a.await(ctx)
}

// inquiry is a request from the caller's point of view, until the answer. If another caller has already requested the
// same, the inquiry follows the record of the other caller, and leaves the deletion of the record to the other caller.
type inquiry struct {
	leases  feed.LeaseStore
	request Request
	who     string
	name    string // in the records of this caller

	begun    time.Time
	followed string      // the name in the followed record; empty if no record was written yet
	record   feed.Record // the followed record, in the last known state
	seen     bool        // whether a list has shown the record
	posted   time.Time   // when this caller found or wrote the record
	expires  time.Time   // when the store removes the record of this caller
	listed   time.Time   // time of the last list, by the store's clock
	trouble  error       // why the last list failed
}

func newInquiry(leases feed.LeaseStore, q Request, who string) *inquiry {
	return &inquiry{leases: leases, request: q, who: who, name: rand.Text(), begun: time.Now()}
}

// The waits until the records are listed again.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

// maxLag is how long a missing request in a list proves nothing. The list of a [feed.LeaseStore] must not lag. If a
// list does lag, an unlisted request does not count as gone during maxLag.
const maxLag = 5 * time.Second

// await makes the request, and waits for the outcome.
func (a *inquiry) await(ctx context.Context) (o notes.Outcome, err error) {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		if a.followed == "" {
			err = a.post(ctx)
		}
		served := false
		if err == nil {
			o, served, err = a.lookForOutcome(ctx)
		}
		if served || errors.Is(err, ErrNotServed) {
			return o, err
		}
		if err == nil {
			err = pause.For(ctx, wait)
		}
		if err != nil {
			return a.giveUp(ctx, err)
		}
	}
}

// The time to live of a request.
const (
	maxTTL   = 24 * time.Hour
	extraTTL = time.Minute // beyond the deadline of the caller, who withdraws the request before
)

// ttl is how long a request is kept, because the caller may have died.
func ttl(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return maxTTL
	}
	return min(max(time.Until(deadline), 0)+extraTTL, maxTTL)
}

// unread is how long an outcome is left for the caller who has requested it. Callers look for their outcome every
// lastWait, and stores keep whole seconds.
const unread = 2 * lastWait

// post writes the request, or revives a record served before. If another caller has requested the same, and
// the request is not served yet, post follows the other caller's record. If another write intervenes, or if the other
// caller may not have read the outcome, post follows no record yet.
func (a *inquiry) post(ctx context.Context) error {
	r := feed.Record{
		Kind: feed.KindRequest, Token: a.request.Token(), Timestamp: time.Now().UTC(), TTL: ttl(ctx),
		Properties: a.properties(nil),
	}
	a.record, a.seen, a.posted, a.expires = feed.Record{}, false, time.Now(), time.Now().Add(r.TTL)
	stored, err := a.leases.Create(ctx, r)
	if errors.Is(err, feed.ErrConflict) {
		old, there, listErr := a.find(ctx)
		switch {
		case listErr != nil:
			return listErr
		case !there:
			return nil
		case old.State == feed.StateLive && !replaces(a.request, old):
			a.followed, a.record, a.seen = nameOf(old), old, true
			return nil
		case a.isUnread(old):
			return nil
		}
		r.ID, r.ETag, r.Raw, r.Properties = old.ID, old.ETag, old.Raw, a.properties(old.Properties)
		stored, err = a.leases.Update(ctx, r)
	}
	switch {
	case err == nil:
		a.followed, a.record = a.name, stored
	case errors.Is(err, feed.ErrConflict), errors.Is(err, feed.ErrNotFound):
		err = nil
	}
	return err
}

// replaces reports whether a request replaces a live one with its token, because the live one asks for something else.
// Its caller may have died.
func replaces(q Request, old feed.Record) bool {
	c, ok := q.(notes.Control)
	return ok && !c.Asks(old.Properties)
}

func (a *inquiry) properties(others map[string]string) map[string]string {
	return notes.Set(a.request.Anew(others), notes.CallerProperty, a.name)
}

func nameOf(r feed.Record) string { return cmp.Or(r.Properties[notes.CallerProperty], "unnamed") }

// find finds the record of the request. An expired record counts as retired: no instance serves the request, although
// the store has not removed the record.
func (a *inquiry) find(ctx context.Context) (found feed.Record, there bool, err error) {
	records, now, err := a.leases.List(ctx)
	a.listed = now
	for _, r := range records {
		if r.Kind == feed.KindRequest && r.Token == a.request.Token() {
			found, there = r, true
		}
	}
	if found.TTL > 0 && now.After(found.Updated.Add(found.TTL)) {
		found.State = feed.StateRetired
	}
	return found, there, err
}

// isUnread reports whether a record has an outcome which the caller may not have read.
func (a *inquiry) isUnread(r feed.Record) bool {
	_, served := notes.ReadOutcome(r.Properties)
	return served && a.listed.Sub(r.Updated) < unread
}

// lookForOutcome looks for the outcome.
func (a *inquiry) lookForOutcome(ctx context.Context) (o notes.Outcome, served bool, err error) {
	if a.followed == "" {
		return o, false, nil
	}
	r, there, err := a.find(ctx)
	if a.trouble = err; err != nil {
		return o, false, nil
	}
	if there && nameOf(r) == a.followed {
		a.record, a.seen = r, true
		if o, served = a.takeOutcome(ctx, r); served || r.State == feed.StateLive {
			return o, served, nil
		}
	} else if !a.seen && time.Since(a.posted) < maxLag {
		return o, false, nil
	}
	// The request is gone: somebody has withdrawn the request, or another caller has taken the outcome of their own
	// request.
	if a.followed == a.name && time.Now().Before(a.expires) {
		return o, false, fmt.Errorf("%w: somebody has withdrawn the request", ErrNotServed)
	}
	a.followed = ""
	return o, false, nil
}

// takeOutcome reads the outcome in a served record, and deletes the record if this caller is its author. Without the
// right to delete, the record stays retired until the store removes it.
func (a *inquiry) takeOutcome(ctx context.Context, r feed.Record) (notes.Outcome, bool) {
	o, ok := notes.ReadOutcome(r.Properties)
	if !ok || r.State == feed.StateLive {
		return notes.Outcome{}, false
	}
	if nameOf(r) == a.name {
		_ = a.leases.Delete(ctx, r)
	}
	return o, true
}

// withdrawTime bounds how long a caller withdraws a request after the end of the context.
const withdrawTime = 5 * time.Second

// giveUp withdraws the request, because ctx has ended or the request could not be written. If the request was served at
// this moment, giveUp returns the outcome.
func (a *inquiry) giveUp(ctx context.Context, cause error) (notes.Outcome, error) {
	within := time.Since(a.begun)
	if deadline, ok := ctx.Deadline(); ok { // a busy machine notices the end of the deadline late
		within = min(within, deadline.Sub(a.begun))
	}
	lingering, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
	defer cancel()
	o, served, fate := a.withdraw(lingering)
	switch {
	case served:
		return o, nil
	case ctx.Err() == nil:
		return o, cause
	}
	return o, a.notServed(ctx, within, fate)
}

// withdraw withdraws the request if this caller is the author, unless the request is served. fate says in words whether
// the request was withdrawn.
func (a *inquiry) withdraw(ctx context.Context) (o notes.Outcome, served bool, fate string) {
	for range MaxConflicts {
		r, there, err := a.find(ctx)
		if !there && !a.seen {
			r = a.record // the list lags, or there is no record
		}
		if a.isOurs(r) {
			if o, served = a.takeOutcome(ctx, r); served {
				return o, true, ""
			}
		}
		switch {
		case err != nil:
			return o, false, a.staysAsked(err)
		case r.ID == "" || r.State != feed.StateLive:
			return o, false, "the request is gone"
		case nameOf(r) != a.name:
			return o, false, "somebody else has asked for the same, and their request stays asked"
		}
		a.record, a.seen = r, true
		switch err = Withdraw(ctx, a.leases, r); {
		case err == nil:
			return o, false, "the request was withdrawn"
		case !errors.Is(err, feed.ErrConflict) && !errors.Is(err, feed.ErrNotFound):
			return o, false, a.staysAsked(err)
		}
	}
	return o, false, a.staysAsked(feed.ErrConflict)
}

// isOurs reports whether a record belongs to this caller, or to the caller followed by this inquiry.
func (a *inquiry) isOurs(r feed.Record) bool {
	return nameOf(r) == a.name || nameOf(r) == a.followed
}

// staysAsked says how long a request stays if it cannot be withdrawn.
func (a *inquiry) staysAsked(err error) string {
	return fmt.Sprintf("the request could not be withdrawn, and stays asked for at most %v: %v",
		time.Until(a.expires).Round(time.Second), err)
}

// notServed returns the error for a caller whose context has ended.
func (a *inquiry) notServed(ctx context.Context, within time.Duration, fate string) error {
	text := fmt.Sprintf("%v within %v", ErrNotServed, within.Round(10*time.Millisecond))
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		text += fmt.Sprintf(" (%v)", context.Cause(ctx))
	}
	e := &unserved{text + ": " + a.reason() + "; " + fate, []error{ErrNotServed, context.Cause(ctx)}}
	if a.record.Properties[notes.UnknownProperty] != "" {
		e.causes = append(e.causes, ErrUnknownAction)
	}
	return e
}

// reason says why the request is not served, as far as the caller knows.
func (a *inquiry) reason() string {
	switch why := a.record.Properties[notes.WaitsProperty]; {
	case why != "":
		return why
	case notes.ReadRequest(a.record.Properties).Tries > 0:
		return "an instance has begun with it, and may still finish"
	case a.trouble != nil && !errors.Is(a.trouble, context.DeadlineExceeded): // a read at the end had no time
		return fmt.Sprintf("the leases could not be read: %v", a.trouble)
	}
	return "no instance has answered: want a running instance" + a.who
}

// unserved is an [ErrNotServed] which also wraps the cause of a context, and [ErrUnknownAction] if this is the reason.
type unserved struct {
	text   string
	causes []error
}

func (e *unserved) Error() string   { return e.text }
func (e *unserved) Unwrap() []error { return e.causes }

// Withdraw removes a live request, so no instance serves it. An instance already at work on the request follows writes
// and not deletes, so the record stays, retired, long enough for the instance to read the withdrawal.
func Withdraw(ctx context.Context, leases feed.LeaseStore, r feed.Record) error {
	if !notes.HasBegun(r.Properties) {
		if err := leases.Delete(ctx, r); !errors.Is(err, feed.ErrForbidden) {
			return err
		}
	}
	r.State, r.TTL = feed.StateRetired, notes.OutcomeTTL
	_, err := leases.Update(ctx, r)
	return err
}

// MaxConflicts bounds how often a request is read again because the owner has written the request meanwhile.
const MaxConflicts = 10
