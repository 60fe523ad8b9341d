package records

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

func record(id string, version int, written time.Time) feed.Record {
	return feed.Record{ID: id, ETag: strconv.Itoa(version), Updated: written}
}

func listing(records ...feed.Record) map[string]feed.Record {
	byID := map[string]feed.Record{}
	for _, r := range records {
		byID[r.ID] = r
	}
	return byID
}

func text(v *View) (all []string) {
	for _, r := range v.Where(func(string, feed.Record) bool { return true }) {
		all = append(all, r.ID+r.ETag)
	}
	return all
}

// Of a listing and the news that came while it was on its way, the later counts for each record.
func TestNewsOutlivesTheListingItOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		v := NewView(nil, nil)
		v.Put(record("old", 1, store))
		v.Put(record("gone before", 1, store))
		v.Drop("gone before")
		asked, events := time.Now(), v.countEvents()
		v.Put(record("new", 1, store))
		v.Put(record("ahead", 2, store.Add(2*time.Second)))
		v.Put(record("late", 2, store.Add(2*time.Second)))
		v.Put(record("same second", 2, store))
		v.Drop("gone")
		v.replaceRecords(listing(
			record("ahead", 1, store), record("late", 3, store.Add(3*time.Second)), record("same second", 1, store),
			record("gone", 1, store), record("gone before", 2, store.Add(time.Second)),
		), store, asked, events)
		if want := []string{"ahead2", "gone before2", "late3", "new1", "same second2"}; !slices.Equal(text(v), want) {
			t.Errorf("there are %v, want %v", text(v), want)
		}
		if _, known := v.Get("old"); known {
			t.Error("news from before the listing has outlived it")
		}
		events = v.countEvents()
		v.Drop("new") // alone
		if v.replaceRecords(listing(record("new", 1, store)), store, asked, events); len(text(v)) != 0 {
			t.Errorf("a record that was deleted meanwhile is among %v", text(v))
		}
		if v.replaceRecords(listing(), store, asked, v.countEvents()); len(text(v)) != 0 {
			t.Errorf("the next listing is empty, and there are %v", text(v))
		}
	})
}

// A picture that was distrusted while its listing was on its way is not fresh.
func TestDistrustOutlivesTheListingItOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewView(nil, nil)
		asked, events := time.Now(), v.countEvents()
		v.replaceRecords(listing(), time.Now(), asked, events)
		if !v.Listed().Equal(asked) {
			t.Errorf("listed %v, want %v", v.Listed(), asked)
		}
		time.Sleep(time.Second)
		if v.Distrust(); !v.Listed().IsZero() {
			t.Error("trusted though something has contradicted it")
		}
		v.replaceRecords(listing(), time.Now(), asked, events)
		if !v.Listed().IsZero() {
			t.Error("trusted again by a listing that was asked for before")
		}
		v.replaceRecords(listing(), time.Now(), time.Now(), v.countEvents())
		if v.Listed().IsZero() {
			t.Error("distrusted for ever")
		}
	})
}

// The store's clock goes on by ours.
func TestTheStoresTimeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := time.Now().Add(-time.Hour)
		v := NewView(nil, nil)
		if !v.LastAnswer().IsZero() {
			t.Errorf("answered %v, before it was asked", v.LastAnswer())
		}
		v.answeredAt(store)
		begun := time.Now()
		time.Sleep(time.Minute)
		if now := v.Now(); !now.Equal(store.Add(time.Minute)) || !v.LastAnswer().Equal(begun) {
			t.Errorf("it is %v there, and it answered %v", now, v.LastAnswer())
		}
		v.replaceRecords(listing(), store, begun, v.countEvents()) // a listing is an answer
		listed := time.Now()
		time.Sleep(time.Second)
		if now := v.Now(); !now.Equal(store.Add(time.Second)) || !v.LastAnswer().Equal(listed) {
			t.Errorf("after a listing it is %v there, and it answered %v", now, v.LastAnswer())
		}
	})
}

// What replaces a record knows the one before.
func TestARecordIsReplacedKnowingTheOneBefore(t *testing.T) {
	v := NewView(nil, nil)
	for version := range 3 {
		v.changeRecord("a", func(old feed.Record, known bool) feed.Record {
			if want := strconv.Itoa(version - 1); known != (version > 0) || known && old.ETag != want {
				t.Errorf("version %d comes after %q, known %v", version, old.ETag, known)
			}
			return record("a", version, time.Time{})
		})
	}
}

// A follower hears of no deletes. A lease for a part of another one says that there may have been one.
func TestALeaseForAPartOfAnotherHasThePictureListedAnew(t *testing.T) {
	for _, c := range []struct {
		name   string
		record feed.Record
		anew   bool
	}{
		{"a part", feed.Record{Kind: feed.KindLease, Range: feed.Range{Min: "", Max: "20"}}, true},
		{"a merge", feed.Record{Kind: feed.KindLease, Range: feed.Range{Min: "", Max: "FF"}}, true},
		{"a part of a lease that is being split", feed.Record{
			Kind:  feed.KindLease,
			Range: feed.Range{Min: "40", Max: "60"},
		}, false},
		{"a part that is being split", feed.Record{
			Kind: feed.KindLease, Range: feed.Range{Min: "", Max: "20"},
			State: feed.StateSplitting,
		}, false},
		{"keys beside it", feed.Record{Kind: feed.KindLease, Range: feed.Range{Min: "80", Max: "FF"}}, false},
		{"an instance", feed.Record{Kind: feed.KindHost}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := NewView(nil, nil)
			asked := time.Now().Add(time.Second)
			time.Sleep(time.Minute)
			v.replaceRecords(listing(
				feed.Record{ID: "old", Kind: feed.KindLease, Range: feed.Range{Min: "", Max: "40"}},
				feed.Record{
					ID: "splitting", Kind: feed.KindLease, Range: feed.Range{Min: "40", Max: "80"},
					State: feed.StateSplitting,
				},
			), asked, asked, v.countEvents())
			c.record.ID = "new"
			if !v.Heard([]feed.Record{c.record}, time.Now()) {
				t.Errorf("%s: no round follows", c.name)
			}
			if anew := v.Listed().IsZero(); anew != c.anew {
				t.Errorf("%s: listed anew %v, want %v", c.name, anew, c.anew)
			}
		})
	}
}
