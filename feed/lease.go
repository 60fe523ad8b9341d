package feed

import (
	"cmp"
	"context"
	"encoding/json"
	"time"
)

// LeaseStore keeps the records of a deployment unit: who reads which range, and up to which position. A store
// implements LeaseStore for a processor name and a monitored container, and proves the implementation with
// changefeedtest.TestLeaseStore. All methods may be called concurrently. The store keeps every kind and every state
// that is a word of small letters, also future kinds and states.
//
// Every write is conditional. If a store does not know the outcome of a write, the error must be neither [ErrConflict]
// nor [ErrNotFound]; the processor then finds out by itself whether the write arrived. The same holds if ctx has ended:
// then any other error is allowed, whether or not it wraps the error of the context. If a write or a listing has no
// answer after 65 seconds, the ctx of the call ends.
//
// A record and its Properties and Raw belong to the caller, who may change them after the call: a store keeps copies,
// and returns copies.
type LeaseStore interface {
	// List returns all records of the unit, in any order, and the store's own time. The result contains every write
	// acknowledged to any client before the call: List must not lag. The result need not show a single moment:
	// of the writes during the call, List may show some and omit others. If a document is not a valid record, List
	// returns the record with Err set.
	List(ctx context.Context) (records []Record, now time.Time, err error)

	// Create adds a record, or returns [ErrConflict] if a record with its kind and token exists. The result has the ID,
	// ETag and Updated of the store.
	Create(ctx context.Context, l Record) (Record, error)

	// Update replaces the record with this kind and token. Update returns [ErrConflict] if the stored ETag differs, and
	// [ErrNotFound] if the record is gone. Members of the stored document unknown to the record are kept.
	Update(ctx context.Context, l Record) (Record, error)

	// Delete removes a record. Delete returns [ErrConflict] if the stored ETag differs, [ErrNotFound] if the record is
	// gone, and [ErrForbidden] if the caller lacks the right to delete.
	Delete(ctx context.Context, l Record) error
}

// Follower is an optional ability of a [LeaseStore]: an instance can follow its changes. So a round need not list all
// records, and an instance notices a hand-over at once.
type Follower interface {
	// Follow waits until records have changed since cursor. Follow returns these records, the cursor after them and the
	// store's time. With an empty cursor, Follow returns the present cursor at once, without records. Follow may return
	// early without records. Deleted records do not appear. Records arrive in any order. The last version of a record
	// always arrives; earlier versions may be omitted, and none arrives after a later version. A record may arrive
	// again unchanged. When ctx ends, Follow returns an error.
	Follow(ctx context.Context, cursor string) (changed []Record, next string, now time.Time, err error)
}

// Kind is the kind of a record. Later versions may add kinds: a record of an unknown kind belongs to a newer version,
// is kept and left alone, and is no lease.
type Kind string

const (
	// KindLease is a lease: a range, its owner and its position.
	KindLease Kind = "lease"
	// KindHost is the presence of one running instance.
	KindHost Kind = "host"
	// KindInfo marks the completed creation of the unit's leases.
	KindInfo Kind = "info"
	// KindLock is held while leases are being created.
	KindLock Kind = "lock"
	// KindRequest asks the owner of a range for something: see packages deadletters and admin.
	KindRequest Kind = "request"
	// KindHistory has the actions of operators on the unit: see package admin. Processors ignore this record.
	KindHistory Kind = "history"
)

// Record is a document of a [LeaseStore]. Every kind uses Kind, ID, Token, Owner, Epoch, State, Expiration, TTL,
// Timestamp, Properties and the fields set by the store. The other fields have a meaning for [KindLease] only.
type Record struct {
	Kind  Kind   // required: a store refuses a record without a kind
	Token string // of a lease: "min-max", or a partition key range id in version 0; of a host: its instance and epoch
	Range Range  // the keys that the lease covers; unknown (empty) in old version 0 leases

	// Version is 1 for a lease on an EPK range, 0 for a lease on a partition key range id.
	Version int

	Owner string // instance name; empty is free
	// the owner's process, so that two processes with the same name are two owners; empty for other processors
	Epoch string

	Position Position
	Mode     Mode
	// how often the handler has received the first change after Position; valid for this Position alone
	Attempts int
	State    State     // live, or being replaced after a split
	Fence    time.Time // by the store's clock: a new owner must not begin before this time

	// Expiration is how long the owner may be silent; other instances use the larger of this and their own expiration.
	Expiration time.Duration
	TTL        time.Duration // the store removes the record after this time without a write; 0 is never

	Timestamp time.Time // last write by the writer's clock; kept for other processors, never compared
	Updated   time.Time // last write by the store's clock; set by the store

	ID     string  // the record's name in the store; set by the store
	ETag   string  // set by the store
	Charge float64 // request units of the write that returned the record; set by the store, 0 if unknown

	Properties map[string]string // free for all users; kept
	Raw        json.RawMessage   // the stored document; a store keeps unknown members
	Err        error             // why the document is not a valid record
}

// Lease is the right of an instance to read a range, for handlers and operators: a [Record] of [KindLease] without the
// fields only its writers need.
type Lease struct {
	ID       string // the record's name in the store
	Token    string // "min-max", or a partition key range id in a version 0 lease
	Range    Range  // the keys of the lease
	Owner    string // instance name; empty is free
	Epoch    string // the owner's process; empty for other processors
	Position Position
	Mode     Mode
	Attempts int // how often the handler has received the first change after Position
	State    State
	Updated  time.Time // last write by the store's clock

	Properties map[string]string // shared by all users; do not modify it
}

// Lease returns a record of [KindLease] in the form for handlers and operators.
func (l Record) Lease() Lease {
	return Lease{
		ID: l.ID, Token: l.Token, Range: l.Range, Owner: l.Owner, Epoch: l.Epoch, Position: l.Position, Mode: l.Mode,
		Attempts: l.Attempts, State: l.State, Updated: l.Updated, Properties: l.Properties,
	}
}

// State is the stage of a lease in a split. A lease in an unknown state belongs to a newer version: such a lease is
// kept, reported and left alone, and still covers its range.
type State string

const (
	// StateLive is a lease whose owner handles its range.
	StateLive State = ""
	// StateSplitting is a lease whose range is gone: the owner makes the leases that replace it and does not read.
	StateSplitting State = "splitting"
	// StateRetired is a lease that other leases replace but that could not be deleted.
	StateRetired State = "retired"
)

// String returns the word for the state; the zero State is "live".
func (s State) String() string { return cmp.Or(string(s), "live") }

// Free reports whether the lease has no owner.
func (l Record) Free() bool { return l.Owner == "" }
