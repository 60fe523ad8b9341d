package records

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

// overtaken is a lease store whose listings are answered at once, after something else has happened at the same moment.
type overtaken struct {
	feed.LeaseStore
	records []feed.Record
	before  func()
}

// List implements [feed.LeaseStore].
func (s *overtaken) List(context.Context) ([]feed.Record, time.Time, error) {
	s.before()
	return s.records, time.Now(), nil
}

// A clock may stand still for as long as a listing takes. What comes during the listing is not older for that.
func TestNewsOfTheMomentOfAListingStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &overtaken{records: []feed.Record{record("a", 1, time.Now())}}
		v := NewView(s, nil)
		s.before = func() { v.Put(record("b", 1, time.Now())) }
		if err := v.List(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"a1", "b1"}; !slices.Equal(text(v), want) {
			t.Errorf("there are %v, want %v", text(v), want)
		}
	})
}

// What came before a listing is older than it, also if the clock has not moved since: a follower may have brought a
// record that has been deleted.
func TestNewsBeforeAListingOfTheSameMomentIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewView(&overtaken{records: []feed.Record{record("a", 2, time.Now())}, before: func() {}}, nil)
		v.Heard([]feed.Record{record("a", 1, time.Now()), record("deleted", 1, time.Now())}, time.Now())
		if err := v.List(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"a2"}; !slices.Equal(text(v), want) {
			t.Errorf("there are %v, want %v", text(v), want)
		}
	})
}

// Nor is a listing newer than a contradiction that comes while it is under way.
func TestAListingOfTheMomentOfAContradictionIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &overtaken{}
		v := NewView(s, nil)
		s.before = v.Distrust
		if err := v.List(t.Context(), time.Time{}); err != nil || !v.Listed().IsZero() {
			t.Errorf("listed at %v, %v; want never", v.Listed(), err)
		}
	})
}
