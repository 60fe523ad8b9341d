package records

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A lease is its owner's to the end of the last second that its record may mean.
func TestALeaseIsItsOwnersToItsLastMoment(t *testing.T) {
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ own, others time.Duration }{
		{time.Minute, time.Minute},
		{2 * time.Minute, time.Minute},
		{0, 2 * time.Minute},
	} {
		l := feed.Record{Kind: feed.KindLease, Owner: "b", Epoch: "e", Updated: written, Expiration: c.own}
		last := written.Add(max(c.own, c.others) + time.Second) // stores may keep whole seconds
		if IsExpired(l, last, c.others) || !IsExpired(l, last.Add(time.Nanosecond), c.others) ||
			!TakeableAt(l, c.others).Equal(last) {
			t.Errorf("a lease for %v, judged by %v, is to be taken from %v on, want after %v", c.own, c.others,
				TakeableAt(l, c.others), last)
		}
	}
}

// A lease without a start is not worked on, whether somebody holds it or not, unless its unit
// has one.
func TestALeaseWithoutAStartIsNotWorkedOn(t *testing.T) {
	v := NewView(nil, nil)
	half := feed.FullRange().Cut(2)
	for i, owner := range []string{"", "net"} {
		v.Put(feed.Record{
			Kind: feed.KindLease, ID: "unit.." + half[i].String(), Version: 1, Token: half[i].String(),
			Range: half[i], Owner: owner,
		})
	}
	if good, bad := v.Placed(); len(good) != 0 || len(bad) != 2 || !errors.Is(bad[1].Err, feed.ErrNoStart) {
		t.Errorf("worked on %v, not on %v", good, bad)
	}
	v.Put(feed.Record{
		ID: "unit.info", Kind: feed.KindInfo,
		Properties: map[string]string{notes.OriginProperty: "beginning"},
	})
	if good, bad := v.Placed(); len(good) != 2 || len(bad) != 0 {
		t.Errorf("worked on %v, not on %v, though the unit has a start", good, bad)
	}
}

// Tokens of version 0 leases are compared as numbers.
func TestPositionsAreComparedAsNumbers(t *testing.T) {
	v := NewView(nil, counted{})
	ordered := []feed.Position{{}, feed.At(`"9"`), feed.At(`"10"`), feed.At(`"99"`), feed.At(`"100"`)}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := v.isBefore(a, b); got != (i < j) {
				t.Errorf("%v before %v: %v", a, b, got)
			}
		}
	}
}

// The number of an owner never goes back, because the store's clock can, from which the number of a new lease comes.
func TestTheNumberOfANewLeaseIsNotBelowAnEarlierOne(t *testing.T) {
	for _, c := range []struct{ old, made, want int64 }{{7, 5, 7}, {5, 7, 7}, {0, 3, 3}, {3, 0, 3}} {
		var old, made feed.Record
		SetProperty(&old, notes.TermProperty, notes.PlainNumber(c.old))
		SetProperty(&made, notes.TermProperty, notes.PlainNumber(c.made))
		if KeepTerm(&made, old); TermOf(made) != c.want {
			t.Errorf("a lease made with number %d instead of one with %d has %d, want %d", c.made, c.old, TermOf(made), c.want)
		}
	}
}
