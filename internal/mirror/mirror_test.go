package mirror

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type record struct {
	id      string
	version int
	written time.Time
}

func written(r record) time.Time { return r.written }

func put(m *Mirror[record], r record) {
	m.Put(r.id, func(record, bool) record { return r })
}

func listing(records ...record) map[string]record {
	byID := map[string]record{}
	for _, r := range records {
		byID[r.id] = r
	}
	return byID
}

func text(m *Mirror[record]) (all []string) {
	for _, r := range m.Where(func(string, record) bool { return true }) {
		all = append(all, fmt.Sprint(r.id, r.version))
	}
	return all
}

// Of a listing and the news that came while it was on its way, the later counts for each record.
func TestNewsOutlivesTheListingItOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		m := New(written)
		put(m, record{"old", 1, store})
		put(m, record{"gone before", 1, store})
		m.Drop("gone before")
		time.Sleep(time.Second)
		asked := time.Now()
		time.Sleep(time.Second)
		put(m, record{"new", 1, store})
		put(m, record{"ahead", 2, store.Add(2 * time.Second)})
		put(m, record{"late", 2, store.Add(2 * time.Second)})
		m.Drop("gone")
		m.Replace(listing(
			record{"ahead", 1, store}, record{"late", 3, store.Add(3 * time.Second)},
			record{"gone", 1, store}, record{"gone before", 2, store.Add(time.Second)},
		), store, asked)
		if want := []string{"ahead2", "gone before2", "late3", "new1"}; !slices.Equal(text(m), want) {
			t.Errorf("there are %v, want %v", text(m), want)
		}
		if _, known := m.Get("old"); known {
			t.Error("news from before the listing has outlived it")
		}
		asked = time.Now().Add(time.Nanosecond)
		time.Sleep(time.Second)
		if m.Replace(listing(), store, asked); len(text(m)) != 0 {
			t.Errorf("the next listing is empty, and there are %v", text(m))
		}
	})
}

// A picture that was distrusted while its listing was on its way is not fresh.
func TestDistrustOutlivesTheListingItOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(written)
		asked := time.Now()
		m.Replace(listing(), time.Now(), asked)
		if !m.Listed().Equal(asked) {
			t.Errorf("listed %v, want %v", m.Listed(), asked)
		}
		time.Sleep(time.Second)
		if m.Distrust(); !m.Listed().IsZero() {
			t.Error("trusted though something has contradicted it")
		}
		m.Replace(listing(), time.Now(), asked)
		if !m.Listed().IsZero() {
			t.Error("trusted again by a listing that was asked for before")
		}
		time.Sleep(time.Second)
		m.Replace(listing(), time.Now(), time.Now())
		if m.Listed().IsZero() {
			t.Error("distrusted for ever")
		}
	})
}

// The store's clock goes on by ours.
func TestTheStoresTimeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := time.Now().Add(-time.Hour)
		m := New(written)
		if !m.LastAnswer().IsZero() {
			t.Errorf("answered %v, before it was asked", m.LastAnswer())
		}
		m.Answered(store)
		begun := time.Now()
		time.Sleep(time.Minute)
		if now := m.Now(); !now.Equal(store.Add(time.Minute)) || !m.LastAnswer().Equal(begun) {
			t.Errorf("it is %v there, and it answered %v", now, m.LastAnswer())
		}
		m.Replace(listing(), store, begun) // a listing is an answer
		listed := time.Now()
		time.Sleep(time.Second)
		if now := m.Now(); !now.Equal(store.Add(time.Second)) || !m.LastAnswer().Equal(listed) {
			t.Errorf("after a listing it is %v there, and it answered %v", now, m.LastAnswer())
		}
	})
}

// What replaces a record knows the one before.
func TestARecordIsReplacedKnowingTheOneBefore(t *testing.T) {
	m := New(written)
	for version := range 3 {
		m.Put("a", func(old record, known bool) record {
			if known != (version > 0) || old.version != max(0, version-1) {
				t.Errorf("version %d comes after %d, known %v", version, old.version, known)
			}
			return record{id: "a", version: version}
		})
	}
}
