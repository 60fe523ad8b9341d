package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/sentence"
)

// Snapshot is the positions of a unit at a moment. The JSON is for people too.
type Snapshot struct {
	Version   int       `json:"changefeed_snapshot"` // of the form: 1
	Container string    `json:"container,omitempty"` // resource ids of the monitored container; empty if unknown
	Mode      string    `json:"mode"`                // in the words of feed.Mode
	Taken     time.Time `json:"taken"`               // by the clock of the lease store
	Leases    []Place   `json:"leases"`              // in the order of their ranges
}

// Place is the position of a lease: all changes of the range before the position are handled. Some changes after the
// position may be handled too: they are delivered again after a restore.
type Place struct {
	Range string `json:"range"`           // of effective partition keys, min-max in hex
	Token string `json:"token,omitempty"` // a continuation token
	Start string `json:"start,omitempty"` // where the lease begins, if there is no token
}

// snapshotVersion is the version of the form that this package writes and reads.
const snapshotVersion = 1

// Snapshot returns the positions of the unit, while instances run or not. Leases of processors for .NET and Java are
// read too, so a snapshot of their unit can be restored as a unit of this processor, and the other way round.
//
// A lease that was made and has not been read has the start of the unit. If that is unknown, the error is a
// [feed.ErrNoStart]. An unreadable lease document is an error, because the range would be missing; and so is a note
// about keys that are set aside, because their positions would be. Java's older leases have no ranges, and are an error
// too. While leases are replaced, such as after a split, the error is a [feed.ErrOverlap] or a [feed.ErrHole].
func (u *Unit) Snapshot(ctx context.Context) (*Snapshot, error) {
	v, err := u.list(ctx)
	if err != nil {
		return nil, err
	}
	leases, bad := v.Leases()
	for _, lease := range bad {
		switch {
		case !errors.Is(lease.Err, feed.ErrForeignLease):
			return nil, fmt.Errorf("lease %s: %w", lease.ID, lease.Err)
		case lease.Range.Empty():
			return nil, fmt.Errorf("no snapshot is possible: lease %s names partition %q and no range of keys, as Java's "+
				"handleChanges writes leases: continue under another name, from the time of the oldest change that is "+
				"pending (%w)", lease.ID, lease.Token, lease.Err)
		}
		leases = append(leases, lease)
	}
	if len(leases) == 0 {
		return nil, fmt.Errorf("%w: the unit has no leases", feed.ErrNotFound)
	}
	slices.SortFunc(leases, func(a, b feed.Record) int { return strings.Compare(a.Range.Min, b.Range.Min) })
	if err := checkTiling(v, leases); err != nil {
		return nil, err
	}
	s := &Snapshot{
		Version: snapshotVersion, Container: containerOf(leases[0]), Mode: leases[0].Mode.String(),
		Taken: v.Now().UTC().Truncate(time.Second),
	}
	for _, lease := range leases {
		at, err := u.safePosition(lease)
		if err != nil {
			return nil, err
		}
		if at.Token == "" && at.Start.IsZero() {
			start, known := v.Origin()
			if !known {
				return nil, &feed.StartError{Leases: []string{lease.ID}}
			}
			at.Start = start
		}
		place := Place{Range: lease.Range.String(), Token: at.Token}
		if at.Token == "" {
			place.Start = at.Start.String()
		}
		s.Leases = append(s.Leases, place)
	}
	return s, nil
}

// safePosition returns the earliest position of a lease and of its keys that are set aside. Such a key can be before or
// after the position of the lease.
func (u *Unit) safePosition(lease feed.Record) (feed.Position, error) {
	at := lease.Position
	lsn, counted := records.TokenLSN(u.source, at.Token)
	aside, err := notes.ReadAside(lease.Properties[notes.AsideProperty], notes.Place{
		Position: at.Token, LSN: lsn, Min: lease.Range.Min, Max: lease.Range.Max,
	})
	if err != nil && !errors.Is(err, notes.ErrMoved) { // where the keys are is unknown
		return at, fmt.Errorf("lease %s: %w: property %s: %w", lease.Token, feed.ErrBadLease, notes.AsideProperty, err)
	}
	for _, key := range aside.Keys {
		if at.Token == "" || key.From == at.Token {
			continue
		}
		from, known := records.TokenLSN(u.source, key.From)
		switch {
		case key.From == "":
			at.Token = ""
		case !known || !counted:
			return at, fmt.Errorf("lease %s is at %s, and key %s at %s: %w", lease.Token, at.Token, key.Key, key.From,
				errUnordered)
		case from < lsn:
			at, lsn = records.AsideFrom(lease.Position, key), from
		}
	}
	return at, nil
}

// errUnordered means that the source is no [feed.Sequencer].
var errUnordered = errors.New("this source cannot tell which of two positions is the earlier one")

// containerOf returns the resource ids of the container of a lease, as the ids of lease documents end before the token;
// empty for a store with other ids.
func containerOf(lease feed.Record) string {
	prefix, ok := strings.CutSuffix(lease.ID, ".."+lease.Token)
	parts := strings.Split(prefix, "_")
	if !ok || len(parts) < 3 {
		return ""
	}
	return strings.Join(parts[len(parts)-2:], "_")
}

// WriteTo writes the snapshot as JSON.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return 0, fmt.Errorf("write snapshot: %w", err)
	}
	n, err := w.Write(append(text, '\n'))
	return int64(n), err
}

// ReadSnapshot reads the JSON of a snapshot. The error names the mistake.
func ReadSnapshot(r io.Reader) (*Snapshot, error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	var s Snapshot
	err := d.Decode(&s)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, fmt.Errorf("%w: this is no snapshot: %s is a JSON %s: want %s", feed.ErrBadRequest,
			cmp.Or(wrong.Field, "the text"), wrong.Value, jsonName(wrong.Type.Kind()))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: this is no snapshot: %w", feed.ErrBadRequest, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: there is text after the snapshot: want the JSON of one snapshot", feed.ErrBadRequest)
	}
	if s.Version != snapshotVersion {
		return nil, fmt.Errorf("%w: changefeed_snapshot is %d: want %d", feed.ErrBadRequest, s.Version, snapshotVersion)
	}
	if _, err := s.mode(); err != nil {
		return nil, err
	}
	if _, err := s.places(); err != nil {
		return nil, err
	}
	return &s, nil
}

// jsonName returns the name of a kind of Go values in JSON.
func jsonName(of reflect.Kind) string {
	switch of {
	case reflect.Slice:
		return "an array"
	case reflect.Int:
		return "a number"
	case reflect.String:
		return "a string"
	}
	return "an object"
}

// mode returns the mode of the positions.
func (s *Snapshot) mode() (feed.Mode, error) {
	for _, m := range []feed.Mode{feed.LatestVersion, feed.AllVersionsAndDeletes} {
		if m.String() == s.Mode {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%w: mode is %q: want %q or %q", feed.ErrBadRequest, s.Mode, feed.LatestVersion,
		feed.AllVersionsAndDeletes)
}

// placed is a place of a snapshot, parsed.
type placed struct {
	of feed.Range
	at feed.Position
}

// places parses the places, whose ranges must tile the key space.
func (s *Snapshot) places() (all []placed, err error) {
	covered := ""
	for i, p := range s.Leases {
		var one placed
		if one.of, err = feed.ParseRange(p.Range); err != nil {
			return nil, fmt.Errorf("%w: range of lease %d: %w", feed.ErrBadRequest, i+1, err)
		}
		one.at.Token = p.Token
		if p.Start != "" {
			if one.at.Start, err = feed.ParseStart(p.Start); err != nil {
				return nil, fmt.Errorf("%w: start of lease %s: %w", feed.ErrBadRequest, p.Range, err)
			}
		}
		late := p.Start != "" && (one.at.Start.IsNow() || one.at.Start.Time().After(s.Taken))
		if late || (p.Token == "") == (p.Start == "") {
			return nil, fmt.Errorf("%w: lease %s has token %q and start %q: want a token, or a start before the snapshot "+
				"was taken", feed.ErrBadRequest, p.Range, p.Token, p.Start)
		}
		if one.of.Min != covered {
			return nil, fmt.Errorf("%w: lease %s begins at %q, and the one before ends at %q: want leases without a "+
				"hole or an overlap, in the order of their ranges", feed.ErrBadRequest, p.Range, one.of.Min, covered)
		}
		covered = one.of.Max
		all = append(all, one)
	}
	if covered != feed.FullRange().Max {
		return nil, fmt.Errorf("%w: the leases end at %q: want all keys, up to %q", feed.ErrBadRequest, covered,
			feed.FullRange().Max)
	}
	return all, nil
}

// Restore gives the leases of the unit the positions of a snapshot, as [Unit.Reset] does. The ranges may differ,
// because partitions were split or merged since: a lease whose range has several places continues at the earliest of
// them.
//
// A unit without leases is made, with the leases of the snapshot: so a unit of .NET or Java continues as a unit of this
// processor. Stop the other processors before, and start no instance meanwhile. If that fails in the middle, call
// Restore again with the same snapshot.
//
// A snapshot of another container or mode is a [feed.ErrBadRequest], and so is a snapshot whose positions cannot be
// compared. Then nothing is changed.
func (u *Unit) Restore(ctx context.Context, s *Snapshot) ([]Step, error) {
	places, err := s.places()
	if err != nil {
		return nil, err
	}
	if _, err := s.mode(); err != nil {
		return nil, err
	}
	v, err := u.list(ctx)
	if err != nil {
		return nil, err
	}
	if late := s.Taken.Sub(v.Now()); late > time.Hour { // clocks differ by less
		return nil, fmt.Errorf("%w: the snapshot says that it was taken at %s, in %v: want the time of the past at which "+
			"it was taken", feed.ErrBadRequest, s.Taken.Format(time.RFC3339), sentence.Exact(late.Round(time.Minute)))
	}
	leases, bad := v.Leases()
	if holes := records.Holes(feed.FullRange(), slices.Concat(leases, bad)); len(holes) > 0 {
		if _, marked := v.Marker(); !marked || len(leases) == 0 {
			return u.create(ctx, v, s, places)
		}
		return nil, holeError(v, holes)
	}
	for _, lease := range leases {
		if of := containerOf(lease); s.Container != "" && of != "" && of != s.Container {
			return nil, fmt.Errorf("%w: the snapshot is of container %s, and the unit reads %s: its positions mean "+
				"nothing there", feed.ErrBadRequest, s.Container, of)
		}
		if lease.Mode.String() != s.Mode {
			return nil, fmt.Errorf("%w: the snapshot is of mode %q, and lease %s reads %q", feed.ErrBadRequest, s.Mode,
				lease.Token, lease.Mode)
		}
	}
	return u.resetEach(ctx, ActionRestore, All(), func(ctx context.Context, lease feed.Record) (feed.Position, error) {
		at, err := u.earliestPlace(ctx, lease, places)
		if err != nil {
			return at, err
		}
		return u.resolve(ctx, lease, at)
	})
}

// earliestPlace returns the first of the positions of the places that a lease has keys of.
func (u *Unit) earliestPlace(ctx context.Context, lease feed.Record, places []placed) (feed.Position, error) {
	var all []placed
	for _, p := range places {
		if p.of.Overlaps(lease.Range) && (len(all) == 0 || p.at != all[len(all)-1].at) {
			all = append(all, p)
		}
	}
	first := all[0].at
	if len(all) == 1 {
		return first, nil
	}
	for i, p := range all {
		at, err := tokenOf(ctx, u, lease, p)
		if err != nil || at.Start.IsBeginning() {
			return at, err
		}
		if i == 0 {
			first = at
			continue
		}
		a, ok := records.TokenLSN(u.source, first.Token)
		b, too := records.TokenLSN(u.source, at.Token)
		if !ok || !too {
			return first, fmt.Errorf("%w: range %s has the positions %s and %s in the snapshot: %w", feed.ErrBadRequest,
				lease.Range, first, at, errUnordered)
		}
		if b < a {
			first = at
		}
	}
	return first, nil
}

// tokenOf returns the token of a place that has a start, because only tokens can be compared. The place is that of
// another lease, so its start is read in the keys that both leases have.
func tokenOf(ctx context.Context, u *Unit, lease feed.Record, p placed) (feed.Position, error) {
	if p.at.Token != "" || p.at.Start.IsBeginning() {
		return p.at, nil
	}
	lease.Range = lease.Range.Intersect(p.of)
	return u.resolve(ctx, lease, p.at)
}
