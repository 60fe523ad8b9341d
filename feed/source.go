package feed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed/internal/keyspace"
)

// Source is a monitored container. A store implements Source and proves the implementation with
// changefeedtest.TestSource. All methods may be called concurrently.
type Source interface {
	// Partitions lists the physical partitions; their ranges tile the key space.
	Partitions(ctx context.Context) ([]Partition, error)

	// Read returns the changes of r after from, in LSN order, and the position after them. If there are no changes yet,
	// Read returns an empty page, whose Next may still have moved. Changes of a transaction are never cut between
	// pages. Errors:
	//
	//   - [ErrGone] if r spans several physical partitions, as after a split.
	//   - [ErrTooOld] if the position lies before the changes retained by all versions and deletes.
	//   - [ErrThrottled] if the store asks for a pause.
	//   - [ErrBadRequest] if the token is not the store's, the mode does not support the start, or Key is invalid or
	//     outside r.
	//   - Any error if ctx has ended.
	//
	// A range inside a single partition stays readable through merges, and every position stays valid through splits
	// and merges.
	Read(ctx context.Context, r Range, from Position, o ReadOptions) (Page, error)
}

// Waiter is an optional ability of a [Source]: a reader waits for changes instead of polling.
type Waiter interface {
	// Wait returns nil when r may have changes after from, or context.Cause(ctx) when ctx ends. Wait may return early.
	// If a source can wait with some servers only, Wait returns an [errors.ErrUnsupported] at once with the others:
	// then the processor polls.
	Wait(ctx context.Context, r Range, from Position) error
}

// Counter is an optional ability of a [Source]: an exact count of the pending changes.
type Counter interface {
	// Pending counts the changes of r after from: exactly as many as reads would return now. Unlike Read, Pending
	// accepts any range, and otherwise returns the same errors. If a source can count with some servers only, Pending
	// returns an [errors.ErrUnsupported] with the others.
	Pending(ctx context.Context, r Range, from Position, o ReadOptions) (Backlog, error)
}

// Backlog counts the changes of a range after a position.
type Backlog struct {
	Items  int64     // changes not yet read
	Oldest time.Time // commit time of the first of them; zero if there are none
	Ahead  bool      // the position lies after the end of the feed, see [Page]
}

// Locator is an optional ability of a [Source], which finds the place of a key.
type Locator interface {
	// Locate returns the effective partition key of a key with all its levels. That place is in the only [Range] for
	// which [Range.Holds] is true. Locate returns [ErrBadRequest] if key is invalid, or has more or fewer components
	// than the container has paths.
	Locate(ctx context.Context, key PartitionKey) (epk string, err error)
}

// Sequencer is an optional ability of a [Source], which knows the LSN of a continuation token. With a Sequencer the
// processor compares positions and can set a position within a page. Without a Sequencer the position of a lease with a
// failure within a page stays before the page, and if two leases cover the same keys, neither is removed as redundant.
type Sequencer interface {
	// TokenLSN returns the LSN of a token: in the partition of the read, changes with this LSN and below are before the
	// token, and all others after it. ok is false if the text is no token, or if the source cannot know.
	TokenLSN(token string) (lsn int64, ok bool)

	// TokenAfter returns the token after the changes with an LSN: TokenLSN of this token is that LSN. If the source
	// cannot make such a token, TokenAfter returns "". A negative number is no LSN, so the token is "".
	TokenAfter(lsn int64) string
}

// ReadOptions say how to read.
type ReadOptions struct {
	Mode     Mode
	MaxItems int          // at most this many changes a page, transactions excepted; 0 is the store's default
	Key      PartitionKey // only the changes of this logical partition; empty is all
}

// Mode selects the changes a feed shows.
type Mode uint8

const (
	// LatestVersion shows the last version of each created or replaced item; versions between two reads and deletes do
	// not appear.
	LatestVersion Mode = iota
	// AllVersionsAndDeletes shows every create, replace and delete within the container's retention. This mode starts
	// from now or from a continuation only.
	AllVersionsAndDeletes
)

// String gives the mode's name in the documentation of the service.
func (m Mode) String() string {
	if m == AllVersionsAndDeletes {
		return "all versions and deletes"
	}
	return "latest version"
}

// Page is the result of a read.
type Page struct {
	Changes []Change
	Next    Position // where the next read begins; always set
	Head    int64    // LSN of the newest change of the partition, 0 if unknown
	Session string   // session token of the read
	Charge  float64  // request units
	Range   Range    // the range read; set by Pull

	// Ahead is true for a page without changes whose position lies after the end of the feed; the end is then Head. The
	// position then belongs to another feed, or to a state missing from a backup. A source without this knowledge
	// leaves Ahead false.
	Ahead bool
}

// Position is a place in the change feed of a range: a continuation token, or, if there is no token yet, a [Start]. The
// start stays beside the token, because after a merge a reader from a start time must go on filtering by this time. The
// zero Position reads from now.
type Position struct {
	Token string // continuation from the store: opaque, quotes included
	Start Start
}

// At returns the position of a continuation token.
func At(token string) Position { return Position{Token: token} }

// String returns the token, or the start if there is no token.
func (p Position) String() string {
	if p.Token != "" {
		return p.Token
	}
	return p.Start.String()
}

// Start says where reading begins if there is no continuation. The zero Start is no choice: a new unit then begins from
// now, and an existing unit goes on from the stored position.
type Start struct {
	now, beginning bool
	at             time.Time
	ago            time.Duration // of FromAgo
}

// FromNow begins with the changes committed after the lease is created.
func FromNow() Start { return Start{now: true} }

// FromBeginning begins with the oldest change still in the feed.
func FromBeginning() Start { return Start{beginning: true} }

// FromTime begins with the changes committed at t and later. The service keeps whole seconds, so you may receive all
// changes of the second of t.
func FromTime(t time.Time) Start { return Start{at: t.UTC().Round(0)} }

// FromAgo is [FromTime] of the time d before now. A program may set FromAgo at every run: the unit recognizes d, and
// goes on from the time of the first run.
func FromAgo(d time.Duration) Start {
	return Start{at: time.Now().UTC().Add(-d).Round(0), ago: d}
}

// IsZero reports whether no start was chosen.
func (s Start) IsZero() bool { return s == Start{} }

// IsNow reports whether the start is from now; the zero Start is from now too.
func (s Start) IsNow() bool { return !s.beginning && s.at.IsZero() }

// IsBeginning reports whether the start is from the beginning.
func (s Start) IsBeginning() bool { return s.beginning }

// Time is the start time, zero for the other kinds.
func (s Start) Time() time.Time { return s.at }

// Ago returns the d of a start made by [FromAgo], zero for the others.
func (s Start) Ago() time.Duration { return s.ago }

// AsAgo returns the same start as if [FromAgo] had made it with d.
func (s Start) AsAgo(d time.Duration) Start {
	s.ago = d
	return s
}

// String returns "now", "beginning" or the time in RFC 3339; [ParseStart] reads it.
func (s Start) String() string {
	switch {
	case s.beginning:
		return "beginning"
	case s.at.IsZero():
		return "now"
	}
	return s.at.Format(time.RFC3339Nano)
}

// Given returns the user's text of the start, the same text at each start of a program: for FromAgo the distance, not
// the time.
func (s Start) Given() string {
	switch {
	case s.IsZero():
		return ""
	case s.ago > 0:
		return s.ago.String() + " ago"
	}
	return s.String()
}

// ParseStart reads now, beginning or a time in RFC 3339, the texts of [Start.String].
func ParseStart(text string) (Start, error) {
	switch strings.ToLower(text) {
	case "now":
		return FromNow(), nil
	case "beginning":
		return FromBeginning(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return Start{}, fmt.Errorf("start %q: want now, beginning or a time such as 2026-01-31T15:04:05Z", text)
	}
	return FromTime(t), nil
}

// Partition is a physical partition of a container.
type Partition struct {
	ID      string // partition key range id
	Range   Range
	Parents []string // ids of all partitions from which this partition came, by splits and merges
}

// Range is a half-open range [Min, Max) of effective partition keys: the hex text of hashed keys, with "" below and
// "FF" above all keys.
type Range struct {
	Min, Max string
}

// FullRange is the whole key space.
func FullRange() Range { return Range{Min: "", Max: "FF"} }

// String returns the lease token of the range: min-max.
func (r Range) String() string { return r.Min + "-" + r.Max }

// ParseRange reads a range written min-max, such as -FF or 05C1CF-0BF333.
func ParseRange(text string) (Range, error) {
	r, ok := keyspace.Parse[Range](text)
	if !ok {
		return r, fmt.Errorf("range %q: want min-max in hex with min below max, such as 1F-3F or -FF", text)
	}
	return r, nil
}

// Empty reports whether the range contains no key.
func (r Range) Empty() bool { return r.Min >= r.Max }

// Contains reports whether all of o lies in r.
func (r Range) Contains(o Range) bool { return r.Min <= o.Min && o.Max <= r.Max }

// Holds reports whether r contains the key with this effective partition key.
func (r Range) Holds(epk string) bool { return r.Min <= epk && epk < r.Max }

// Overlaps reports whether r and o have a key in common.
func (r Range) Overlaps(o Range) bool { return !r.Intersect(o).Empty() }

// Intersect returns the common part of r and o, which may be empty.
func (r Range) Intersect(o Range) Range {
	return Range{Min: max(r.Min, o.Min), Max: min(r.Max, o.Max)}
}

// Cut divides the range into n parts with about equally many keys, or fewer parts if the range is too narrow. Cut
// assumes hashes of version 2, which begin below 40; in containers with version 1 hashes the parts are valid but
// uneven.
func (r Range) Cut(n int) []Range { return keyspace.Cut(r, n) }
