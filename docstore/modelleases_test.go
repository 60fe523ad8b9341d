package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// TestLeasesEqualModel holds the records of a unit against a map: listed, followed from
// any cursor that was given, written under their ETags, and gone when they lapse.
func TestLeasesEqualModel(t *testing.T) {
	runModel(t, 25, func(t *testing.T, rt *rapid.T) {
		u := newUnit(t, rt)
		defer func() {
			if err := u.db.Close(); err != nil {
				t.Error(err)
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"":         u.list,
			"create":   u.create,
			"create 2": u.create,
			"update":   u.update,
			"update 2": u.update,
			"delete":   u.delete,
			"follow":   u.follow,
			"sleep": func(rt *rapid.T) {
				time.Sleep(time.Duration(rapid.IntRange(1, 40).Draw(rt, "seconds")) * time.Second)
			},
			"sweep": func(*rapid.T) { u.db.Sweep(u.c) },
			"split": u.split,
		})
	})
}

// unit is a lease store beside its model.
type unit struct {
	t  *testing.T
	db *docstore.DB
	c  *docstore.Container
	s  *docstore.Leases

	records map[string]modelRecord // by token
	older   map[string]feed.Record
	cursors []cursor
	writes  int
}

type modelRecord struct {
	lease feed.Record
	turn  int // of the write
	ends  time.Time
}

// cursor is one that was given after some writes.
type cursor struct {
	text string
	turn int
}

func newUnit(t *testing.T, rt *rapid.T) *unit {
	key := rapid.SampledFrom([]string{"/id", "/partitionKey"}).Draw(rt, "key") // before anything is open
	db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20}.Resting())
	if err != nil {
		rt.Fatal(err)
	}
	u := &unit{t: t, db: db, records: map[string]modelRecord{}, older: map[string]feed.Record{}}
	spec := docstore.ContainerSpec{
		ID: "leases", Paths: []string{key}, DefaultTTL: new(docstore.NoDefaultTTL),
		Ranges: 2,
	}
	u.c = container(t, db, spec)
	if u.s, err = docstore.NewLeases(t.Context(), u.c, "unit", container(t, db, docstore.ContainerSpec{})); err != nil {
		rt.Fatal(err)
	}
	_, first, _, err := u.s.Follow(t.Context(), "")
	if err != nil {
		rt.Fatal(err)
	}
	u.cursors = []cursor{{first, 0}}
	return u
}

// draw is a record of some kind, and what the model has of it.
func (u *unit) draw(rt *rapid.T) (feed.Record, modelRecord, bool) {
	n := rapid.IntRange(0, 7).Draw(rt, "record")
	l := feed.Record{
		Kind: feed.KindLease, Token: fmt.Sprintf("%d0-%d0", n, n+1),
		Range: feed.Range{Min: fmt.Sprint(n, "0"), Max: fmt.Sprint(n+1, "0")}, Version: 1,
	}
	if n > 4 {
		l = feed.Record{Kind: feed.KindHost, Token: fmt.Sprint("host", n), TTL: 30 * time.Second}
	}
	l.Owner = fmt.Sprint("owner", rapid.IntRange(0, 9).Draw(rt, "owner"))
	r, found := u.records[l.Token]
	return l, r, found && (r.ends.IsZero() || r.ends.After(time.Now()))
}

// wrote compares a write with what it should be, and keeps it.
func (u *unit) wrote(rt *rapid.T, given, got feed.Record, err, want error) {
	if !errors.Is(err, want) || want == nil && err != nil {
		rt.Fatalf("write of %s: %v, want %v", given.Token, err, want)
	}
	if err != nil {
		return
	}
	if got.Owner != given.Owner || got.Token != given.Token || got.ETag == "" || got.ETag == u.older[given.Token].ETag {
		rt.Fatalf("wrote %+v, got %+v", given, got)
	}
	u.writes++
	r := modelRecord{lease: got, turn: u.writes}
	if given.TTL > 0 {
		r.ends = time.Now().Add(given.TTL)
	}
	if old, ok := u.records[given.Token]; ok {
		u.older[given.Token] = old.lease
	}
	u.records[given.Token] = r
}

func (u *unit) create(rt *rapid.T) {
	l, _, found := u.draw(rt)
	var want error
	if found {
		want = feed.ErrConflict
	}
	got, err := u.s.Create(u.t.Context(), l)
	u.wrote(rt, l, got, err, want)
}

// drawETag is draw with an ETag, which may not be the present one, and the error that a
// conditional write must have.
func (u *unit) drawETag(rt *rapid.T) (feed.Record, error) {
	l, now, found := u.draw(rt)
	l.ETag = rapid.SampledFrom([]string{now.lease.ETag, now.lease.ETag, u.older[l.Token].ETag, "", "*"}).Draw(rt,
		"etag")
	l.ID, l.Raw = now.lease.ID, now.lease.Raw
	switch {
	case !found:
		return l, feed.ErrNotFound
	case l.ETag == "" || l.ETag != now.lease.ETag:
		return l, feed.ErrConflict
	}
	return l, nil
}

func (u *unit) update(rt *rapid.T) {
	l, want := u.drawETag(rt)
	got, err := u.s.Update(u.t.Context(), l)
	u.wrote(rt, l, got, err, want)
}

func (u *unit) delete(rt *rapid.T) {
	l, want := u.drawETag(rt)
	if err := u.s.Delete(u.t.Context(), l); !errors.Is(err, want) || want == nil && err != nil {
		rt.Fatalf("delete of %s: %v, want %v", l.Token, err, want)
	}
	if want == nil {
		delete(u.records, l.Token)
	}
}

// present are the records that are there and were written after a turn.
func (u *unit) present(turn int) map[string]modelRecord {
	all := map[string]modelRecord{}
	for token, r := range u.records {
		if r.turn > turn && (r.ends.IsZero() || r.ends.After(time.Now())) {
			all[token] = r
		}
	}
	return all
}

func (u *unit) same(rt *rapid.T, got []feed.Record, want map[string]modelRecord) {
	for _, l := range got {
		w, ok := want[l.Token]
		if !ok || l.ETag != w.lease.ETag || l.Owner != w.lease.Owner || l.Kind != w.lease.Kind || l.ID != w.lease.ID ||
			!l.Updated.Equal(w.lease.Updated) || l.Err != nil {
			rt.Fatalf("got %+v, want %+v", l, w)
		}
	}
	if len(got) != len(want) {
		rt.Fatalf("%d records, want %d", len(got), len(want))
	}
}

func (u *unit) list(rt *rapid.T) {
	got, _, err := u.s.List(u.t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	u.same(rt, got, u.present(0))
}

// follow goes on from a cursor; where nothing is new it waits for the end of its context.
func (u *unit) follow(rt *rapid.T) {
	from := rapid.SampledFrom(u.cursors).Draw(rt, "cursor")
	ctx, cancel := context.WithTimeout(u.t.Context(), time.Second)
	defer cancel()
	got, next, _, err := u.s.Follow(ctx, from.text)
	want := u.present(from.turn)
	if len(want) == 0 && errors.Is(err, context.DeadlineExceeded) {
		return
	}
	if err != nil {
		rt.Fatal(err)
	}
	u.same(rt, got, want)
	u.cursors = append(u.cursors, cursor{next, u.writes})
}

func (u *unit) split(rt *rapid.T) {
	parts, err := u.c.Partitions(u.t.Context())
	if err != nil {
		rt.Fatal(err)
	}
	if len(parts) > 4 {
		return
	}
	if _, err := u.c.Split(u.t.Context(), rapid.SampledFrom(parts).Draw(rt, "partition").ID); err != nil {
		rt.Fatal(err)
	}
}
