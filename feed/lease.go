package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"time"
)

// LeaseStore keeps the records of one deployment unit: who reads what, up to where. A
// store implements it, bound to a processor name and a monitored container, and proves
// it with changefeedtest.TestLeaseStore. All methods may be called concurrently. Every kind
// and every state that is a word of small letters is kept, also those that come later.
//
// Every write is conditional. A store must answer a write whose outcome it does not
// know with an error that is neither [ErrConflict] nor [ErrNotFound]; the processor
// then finds out by itself whether the write arrived. So too when ctx has ended: any
// other error will do, whether it wraps the context's or not. A write or listing that has
// no answer after 65 seconds finds its ctx ended.
//
// A record and its Properties and Raw belong to the caller, who may change them after the call: a store keeps copies, and
// returns copies.
type LeaseStore interface {
	// List returns all records of the unit, in any order, and the store's own time. Every
	// write acknowledged to any client before the call is in the result: List must not lag.
	// It need not be of one moment: of writes made meanwhile it may show some and not
	// others. A document that cannot be read as a record is returned with Err set.
	List(ctx context.Context) (records []Record, now time.Time, err error)

	// Create adds a record, or returns [ErrConflict] when a record with its kind and token
	// is present. The result has the ID, ETag and Updated that the store gave it.
	Create(ctx context.Context, l Record) (Record, error)

	// Update replaces the record with this kind and token, or returns [ErrConflict] when the stored ETag is
	// another, [ErrNotFound] when the record is gone. Members of the stored document
	// that the record does not know are kept.
	Update(ctx context.Context, l Record) (Record, error)

	// Delete removes a record, or returns [ErrConflict] when the stored ETag is another,
	// [ErrNotFound] when the record is gone, [ErrForbidden] without the right to delete.
	Delete(ctx context.Context, l Record) error
}

// Follower is an optional ability of a [LeaseStore]: its changes can be followed, so
// that a round need not list everything and hears of a hand-over at once.
type Follower interface {
	// Follow waits until records have changed since cursor and returns them, the
	// cursor after them and the store's time. With an empty cursor it returns at
	// once, with the present cursor and no records. It may return early without
	// records. Deleted records do not appear. Records come in any order. The last
	// version of a record always comes; earlier versions may be left out, and none
	// comes after a later one. A record may come again unchanged. When ctx ends
	// Follow returns an error.
	Follow(ctx context.Context, cursor string) (changed []Record, next string, now time.Time, err error)
}

// Kind is the word for a kind of record. The kinds may grow: a record of a kind that is not
// among these belongs to a newer version: kept, left alone, and no lease.
type Kind string

const (
	// KindLease is a lease: a range, its owner and its position.
	KindLease Kind = "lease"
	// KindHost is the presence of one running instance.
	KindHost Kind = "host"
	// KindInfo marks that the unit's leases have been created.
	KindInfo Kind = "info"
	// KindLock is held while leases are being created.
	KindLock Kind = "lock"
	// KindRequest asks the owner of a range for something: see package deadletters.
	KindRequest Kind = "request"
)

// Record is one document of a [LeaseStore]. Every kind has Kind, ID, Token, Owner, Epoch, State,
// Expiration, TTL, Timestamp, Properties and the fields that the store sets. The other fields
// have a meaning for [KindLease] only.
type Record struct {
	Kind  Kind   // required: a store refuses a record without a kind
	Token string // of a lease "min-max", or a partition key range id in version 0; of a host its instance and epoch
	Range Range  // the keys that the lease covers; unknown (empty) in old version 0 leases

	// Version is 1 for a lease on an EPK range, 0 for one on a partition key range id.
	Version int

	Owner string // instance name; empty is free
	Epoch string // the owner's process, so that two processes with one name are two owners; empty for other processors

	Position Position
	Mode     Mode
	Attempts int       // how often the handler has received the first change after Position; counts for this Position alone
	State    State     // live, or on its way out after a split
	Fence    time.Time // by the store's clock: a new owner must not begin before it

	// Expiration is how long the owner may be silent; others use the larger of this
	// and their own.
	Expiration time.Duration
	TTL        time.Duration // the store removes the record when it was not written for so long; 0 is never

	Timestamp time.Time // last write by the writer's clock; kept for other processors, never judged by
	Updated   time.Time // last write by the store's clock; set by the store

	ID     string  // the record's name in the store; set by the store
	ETag   string  // set by the store
	Charge float64 // of the write that returned it, in request units; set by the store, 0 when it does not say

	Properties map[string]string // everybody's; kept
	Raw        json.RawMessage   // the stored document; a store keeps the members that it does not know
	Err        error             // why the document is not a record that can be worked with
}

// Lease is the right of one instance to read one range, as a handler and an operator see it:
// a [Record] of [KindLease] without the fields that only its writers need.
type Lease struct {
	ID       string // the record's name in the store
	Token    string // "min-max", or a partition key range id in a version 0 lease
	Range    Range  // the keys that it covers
	Owner    string // instance name; empty is free
	Epoch    string // the owner's process; empty for other processors
	Position Position
	Mode     Mode
	Attempts int // how often the handler has received the first change after Position
	State    State
	Updated  time.Time // last write by the store's clock

	Properties map[string]string // everybody's; not to be modified
}

// Lease returns a record of [KindLease] as handlers and operators see it.
func (l Record) Lease() Lease {
	return Lease{
		ID: l.ID, Token: l.Token, Range: l.Range, Owner: l.Owner, Epoch: l.Epoch, Position: l.Position, Mode: l.Mode,
		Attempts: l.Attempts, State: l.State, Updated: l.Updated, Properties: l.Properties,
	}
}

// State is where a lease stands in a split. A lease in a state that is not among these
// belongs to a newer version: it is kept, reported and left alone, and still covers its range.
type State string

const (
	// StateLive is a lease to work on.
	StateLive State = ""
	// StateSplitting is a lease whose range is gone: whoever owns it makes the leases
	// that replace it and does not read.
	StateSplitting State = "splitting"
	// StateRetired is a lease that has been replaced but could not be deleted.
	StateRetired State = "retired"
)

// String returns the word for the state, which is "live" for the zero State.
func (s State) String() string { return cmp.Or(string(s), "live") }

// Free reports whether the lease has no owner.
func (l Record) Free() bool { return l.Owner == "" }
