package feed

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed/internal/keyspace"
)

// Source is where changes come from: a monitored container. A store implements it and
// proves it with changefeedtest.TestSource. All methods may be called concurrently.
type Source interface {
	// Partitions lists the physical partitions; their ranges tile the key space.
	Partitions(ctx context.Context) ([]Partition, error)

	// Read returns the changes of r after from, in LSN order, and the position after
	// them; an empty page when there are none yet, whose Next may still have moved.
	// Changes of one transaction are never cut between pages. It returns [ErrGone] when
	// r spans more than one physical partition (after a split), [ErrTooOld] when the
	// position lies before the changes that all versions and deletes retains, [ErrThrottled]
	// when the store asks for a pause, [ErrBadRequest] for a token that the store never
	// gave, a start that the mode has not, or a Key that is none or not of r. When ctx has
	// ended it returns any error. A range inside one partition stays readable
	// through merges, and every position stays valid through splits and merges.
	Read(ctx context.Context, r Range, from Position, o ReadOptions) (Page, error)
}

// Waiter is an optional ability of a [Source]: readers are pushed instead of polling.
type Waiter interface {
	// Wait returns nil when r may have changes after from, or context.Cause(ctx) when ctx
	// ends. It may return early. A source that has the ability with some servers only returns an
	// [errors.ErrUnsupported] with the others, at once: then it is polled.
	Wait(ctx context.Context, r Range, from Position) error
}

// Counter is an optional ability of a [Source]: an exact count of the pending changes.
type Counter interface {
	// Pending counts the changes of r after from: as many as reads would give now, no
	// more and no fewer. Unlike Read it accepts any range, and otherwise returns the
	// same errors. A source that counts with some servers only returns an [errors.ErrUnsupported] with the others.
	Pending(ctx context.Context, r Range, from Position, o ReadOptions) (Backlog, error)
}

// Backlog counts the changes of a range after a position.
type Backlog struct {
	Items  int64     // changes not yet read
	Oldest time.Time // commit time of the first of them; zero when there are none
	Ahead  bool      // the position lies after the end of the feed, see [Page]
}

// Locator is an optional ability of a [Source]: where a key is.
type Locator interface {
	// Locate returns the effective partition key of a key with all its levels, which is
	// in the one [Range] that [Range.Holds] it. It is an [ErrBadRequest] when key is none,
	// or has more or fewer components than the container has paths.
	Locate(ctx context.Context, key PartitionKey) (epk string, err error)
}

// Sequencer is an optional ability of a [Source]: the LSN that a continuation token stands for. With it the processor compares
// positions and sets one within a page. Without it the position of a lease that fails within a page stays before that page, and of
// two leases for the same keys none is removed as redundant.
type Sequencer interface {
	// TokenLSN is the LSN that a token is after: of the partition that is read, the changes with this LSN and below are before
	// the token, and all others after it. It is not ok for a text that is no token, and for a source that cannot tell.
	TokenLSN(token string) (lsn int64, ok bool)

	// TokenAfter is the token after the changes with an LSN: TokenLSN of it is that LSN. A source that cannot tell returns "".
	TokenAfter(lsn int64) string
}

// ReadOptions say how to read.
type ReadOptions struct {
	Mode     Mode
	MaxItems int          // at most this many changes a page, transactions excepted; 0 is the store's default
	Key      PartitionKey // only the changes of this logical partition; empty is all
}

// Mode selects the changes that a feed shows.
type Mode uint8

const (
	// LatestVersion shows the last version of each item that was created or replaced;
	// versions between two reads and deletes do not appear.
	LatestVersion Mode = iota
	// AllVersionsAndDeletes shows every create, replace and delete within the
	// container's retention. It starts from now or from a continuation only.
	AllVersionsAndDeletes
)

// String gives the mode's name in the documentation of the service.
func (m Mode) String() string {
	if m == AllVersionsAndDeletes {
		return "all versions and deletes"
	}
	return "latest version"
}

// Page is the result of one read.
type Page struct {
	Changes []Change
	Next    Position // where the next read begins; always set
	Head    int64    // LSN of the newest change of the partition, 0 when unknown
	Session string   // session token of the read
	Charge  float64  // request units
	Range   Range    // the range read; set by Pull

	// Ahead is set for a page without changes whose position lies after the end of the feed, which
	// is then Head: the position is that of another feed, or of a state that a backup does
	// not have. A source that does not know leaves it false.
	Ahead bool
}

// Position is a place in the change feed of a range: a continuation token, or, before
// there is one, a [Start]. The start stays beside the token, because after a merge a
// reader from a start time must go on filtering by it. The zero Position reads from now.
type Position struct {
	Token string // continuation as the store gave it: opaque, quotes included
	Start Start
}

// At is the position of a continuation token.
func At(token string) Position { return Position{Token: token} }

// String is the token, or the start when there is none.
func (p Position) String() string {
	if p.Token != "" {
		return p.Token
	}
	return p.Start.String()
}

// Start is where reading begins when there is no continuation. The zero Start is no
// choice: a new unit then begins from now, and an existing unit goes on where it is.
type Start struct {
	now, beginning bool
	at             time.Time
	ago            time.Duration // of FromAgo
}

// FromNow begins with the changes made after the lease is created.
func FromNow() Start { return Start{now: true} }

// FromBeginning begins with the oldest change that the feed still has.
func FromBeginning() Start { return Start{beginning: true} }

// FromTime begins with the changes made at t and later. The service keeps whole seconds,
// so all of the second that t is in may come.
func FromTime(t time.Time) Start { return Start{at: t.UTC().Round(0)} }

// FromAgo is [FromTime] of the time d before now. A program may set it at every run: the unit
// recognizes it by d, and goes on from the time of the first run.
func FromAgo(d time.Duration) Start {
	return Start{at: time.Now().UTC().Add(-d).Round(0), ago: d}
}

// IsZero reports that no start was chosen.
func (s Start) IsZero() bool { return s == Start{} }

// IsNow reports whether the start is from now, as the zero Start is.
func (s Start) IsNow() bool { return !s.beginning && s.at.IsZero() }

// IsBeginning reports whether the start is from the beginning.
func (s Start) IsBeginning() bool { return s.beginning }

// Time is the start time, zero for the other kinds.
func (s Start) Time() time.Time { return s.at }

// Ago is the distance of a start that [FromAgo] has made, zero for the others.
func (s Start) Ago() time.Duration { return s.ago }

// AsAgo is the same start as one that [FromAgo] has made with a distance.
func (s Start) AsAgo(d time.Duration) Start {
	s.ago = d
	return s
}

// String gives "now", "beginning" or the time in RFC 3339; [ParseStart] reads it.
func (s Start) String() string {
	switch {
	case s.beginning:
		return "beginning"
	case s.at.IsZero():
		return "now"
	}
	return s.at.Format(time.RFC3339Nano)
}

// Given is the start as its user gave it, the same at each start of a program: FromAgo has its distance, not its time.
func (s Start) Given() string {
	switch {
	case s.IsZero():
		return ""
	case s.ago > 0:
		return s.ago.String() + " ago"
	}
	return s.String()
}

// ParseStart reads now, beginning or a time in RFC 3339, as [Start.String] writes them.
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
	Parents []string // ids of all partitions that it came from, by splits and merges
}

// Range is a half-open range [Min, Max) of effective partition keys: the hex text of
// hashed keys, "" below and "FF" above all of them.
type Range struct {
	Min, Max string
}

// FullRange is the whole key space.
func FullRange() Range { return Range{Min: "", Max: "FF"} }

// String is the lease token of the range: min-max.
func (r Range) String() string { return r.Min + "-" + r.Max }

// ParseRange reads a range written min-max, such as -FF or 05C1CF-0BF333.
func ParseRange(text string) (Range, error) {
	r, ok := keyspace.Parse[Range](text)
	if !ok {
		return r, fmt.Errorf("range %q: want min-max in hex with min below max, such as 1F-3F or -FF", text)
	}
	return r, nil
}

// Empty reports whether the range holds no key.
func (r Range) Empty() bool { return r.Min >= r.Max }

// Contains reports whether all of o lies in r.
func (r Range) Contains(o Range) bool { return r.Min <= o.Min && o.Max <= r.Max }

// Holds reports whether the key with this effective partition key lies in r.
func (r Range) Holds(epk string) bool { return r.Min <= epk && epk < r.Max }

// Overlaps reports whether r and o share a key.
func (r Range) Overlaps(o Range) bool { return !r.Intersect(o).Empty() }

// Intersect is the part that r and o share; it may be empty.
func (r Range) Intersect(o Range) Range {
	return Range{Min: max(r.Min, o.Min), Max: min(r.Max, o.Max)}
}

// Cut divides the range into n parts of about equally many keys, fewer when it is too
// narrow. It takes hashes of version 2, which begin below 40; for containers with
// version 1 hashes the parts are valid but uneven.
func (r Range) Cut(n int) []Range { return keyspace.Cut(r, n) }
