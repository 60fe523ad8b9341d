package unit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// deleting is a store that says what is deleted, in its order, and lets somebody else act before.
type deleting struct {
	Store
	deleted []feed.Kind
	before  func(r feed.Record) error
}

func (d *deleting) Delete(ctx context.Context, r feed.Record) error {
	if err := d.before(r); err != nil {
		return err
	}
	d.deleted = append(d.deleted, r.Kind)
	return d.Store.Delete(ctx, r)
}

// ended is a unit without a processor: two leases, an instance that has stopped, and the marker.
func ended(t *testing.T, before func(store feed.LeaseStore, r feed.Record) error) (*deleting, []Unit) {
	t.Helper()
	o := newOffice(t)
	free := func(l *feed.Record) { l.Owner, l.Epoch = "", "" }
	o.lease(t, "-1F", free)
	o.lease(t, "1F-FF", free)
	for _, r := range []feed.Record{
		{Kind: feed.KindInfo, Version: 1}, {
			Kind: feed.KindHost, Token: "one/e1", Owner: "one", Epoch: "e1", Version: 1,
			State: feed.StateRetired,
		},
	} {
		if _, err := o.store.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	units := o.survey(t)
	d := &deleting{Store: o.store, before: func(r feed.Record) error { return before(o.store, r) }}
	units[0].store = d
	return d, units
}

// Whoever finds the marker without leases makes them again from where the unit began, and skips nothing.
func TestTheMarkerOfAUnitIsDeletedLast(t *testing.T) {
	d, units := ended(t, func(feed.LeaseStore, feed.Record) error { return nil })
	_, n, err := Delete(t.Context(), "mailer", units, surely)
	if n != 2 || err != nil || len(d.deleted) != 4 || d.deleted[3] != feed.KindInfo {
		t.Errorf("%d leases, %v, deleted %q", n, err, d.deleted)
	}
}

// The check that nobody works may be late. Others may delete the same unit.
func TestAUnitIsDeletedBesideOthers(t *testing.T) {
	_, units := ended(t, func(store feed.LeaseStore, r feed.Record) error { return store.Delete(t.Context(), r) })
	if _, n, err := Delete(t.Context(), "mailer", units, surely); n != 2 || err != nil {
		t.Errorf("what others delete, too: %d leases, %v", n, err)
	}
	d, units := ended(t, func(store feed.LeaseStore, r feed.Record) error {
		if r.Token == "1F-FF" {
			r.Owner, r.Epoch = "one", "e2"
			_, err := store.Update(t.Context(), r)
			return err
		}
		return nil
	})
	_, n, err := Delete(t.Context(), "mailer", units, surely)
	if n != 1 || !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "has begun to work") ||
		slices.Contains(d.deleted, feed.KindInfo) {
		t.Errorf("a processor that begins: %d leases, %v, deleted %q", n, err, d.deleted)
	}
}

// A name means one unit, or the beginning of its ids does.
func TestOnlyTheUnitThatIsNamedIsDeleted(t *testing.T) {
	o := newOffice(t)
	free := func(l *feed.Record) { l.Owner, l.Epoch = "", "" }
	o.lease(t, "-FF", free)
	bills, err := o.db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "bills", Paths: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, monitored := range map[string]*docstore.Container{
		"mailer2": o.monitored, "biller": o.monitored,
		"biller ": bills,
	} {
		other := o
		if other.store, err = docstore.NewLeases(t.Context(), o.leases, strings.TrimSpace(name),
			monitored); err != nil {
			t.Fatal(err)
		}
		other.lease(t, "-FF", free)
	}
	second := strings.Replace(o.store.Prefix(), "localhost", "127.0.0.1", 1)
	o.put(t, o.leases, `{"id":"`+second+`..0","LeaseToken":"0","ContinuationToken":"\"1\"","Owner":null}`)
	o.put(t, o.leases, `{"id":"note.1"}`)
	left := func() (ids []string) {
		for _, u := range o.survey(t) {
			for _, r := range u.Rows {
				if r.Kind == KindLease {
					ids = append(ids, r.ID)
				}
			}
		}
		return ids
	}
	if n := len(left()); n != 5 {
		t.Fatalf("%d leases: %q", n, left())
	}
	for _, name := range []string{"mail", "note", "biller", "m", ""} { // no unit, no unit, two units
		if _, n, err := Delete(t.Context(), name, o.survey(t), surely); n != 0 || !errors.As(err, new(usage.Error)) {
			t.Errorf("delete %q: %d leases, %v", name, n, err)
		}
	}
	if _, n, err := Delete(t.Context(), second, o.survey(t), surely); n != 1 || err != nil || len(left()) != 4 ||
		slices.ContainsFunc(left(), func(id string) bool { return strings.HasPrefix(id, second) }) {
		t.Errorf("delete one of two sets: %d leases, %v, left %q", n, err, left())
	}
	if _, n, err := Delete(t.Context(), "mailer", o.survey(t), surely); n != 1 || err != nil || len(left()) != 3 {
		t.Errorf("delete a unit: %d leases, %v, left %q", n, err, left())
	}
}

// A name that goes on with a dot is another name, and no beginning of ids.
func TestADotInANameBeginsNoOtherUnit(t *testing.T) {
	o := newOffice(t)
	for _, name := range []string{"mail.eu", "mail"} {
		other := o
		var err error
		if other.store, err = docstore.NewLeases(t.Context(), o.leases, name, o.monitored); err != nil {
			t.Fatal(err)
		}
		other.lease(t, "-FF", func(l *feed.Record) { l.Owner, l.Epoch = "", "" })
	}
	for range 2 {
		u, n, err := Delete(t.Context(), "mail", o.survey(t), surely)
		if err == nil && (u.Processor != "mail" || n != 1) || err != nil && !errors.As(err, new(usage.Error)) {
			t.Errorf("delete mail: unit %q, %d leases, %v", u.Processor, n, err)
		}
	}
	if left := o.survey(t); len(left) != 1 || left[0].Processor != "mail.eu" {
		t.Errorf("left %d units", len(left))
	}
}

// listing is a store with records, at a time.
type listing struct {
	Store
	records []feed.Record
	now     time.Time
}

func (l listing) List(context.Context) ([]feed.Record, time.Time, error) {
	return l.records, l.now, nil
}

// A unit whose records are deleted while it works begins anew, and repeats all: so nobody may be at work, nor perhaps.
func TestAUnitAtWorkIsNotDeleted(t *testing.T) {
	held := feed.Record{
		Kind: feed.KindLease, ID: "mailer..-FF", Owner: "one", Epoch: "e1", Expiration: time.Minute,
		Updated: time.Now(),
	}
	for _, tt := range []struct {
		name string
		edit func(r *feed.Record)
		busy time.Duration // for how long after the write
	}{
		{"a lease", func(*feed.Record) {}, 61 * time.Second}, // stores keep whole seconds
		{"of an impatient owner", func(r *feed.Record) { r.Expiration = 10 * time.Second }, 11 * time.Second},
		{"of a patient owner", func(r *feed.Record) { r.Expiration = time.Hour }, time.Hour + time.Second},
		{"of another make", func(r *feed.Record) { r.Epoch, r.Expiration = "", 0 }, 61 * time.Second},
		{"that is free", func(r *feed.Record) { r.Owner, r.Epoch = "", "" }, -1},
		{"that was replaced", func(r *feed.Record) { r.State = feed.StateRetired }, -1},
		{"an instance that owns nothing yet", func(r *feed.Record) { r.Kind = feed.KindHost }, 61 * time.Second},
		{"an instance that has stopped", func(r *feed.Record) {
			r.Kind, r.State = feed.KindHost, feed.StateRetired
		}, -1},
		{"somebody who makes leases", func(r *feed.Record) {
			*r = feed.Record{Kind: feed.KindLock, Updated: r.Updated}
		}, time.Minute},
	} {
		record := held
		tt.edit(&record)
		for after, busy := range map[time.Duration]bool{max(tt.busy, 0): tt.busy >= 0, tt.busy + 1: false} {
			store := listing{records: []feed.Record{record}, now: record.Updated.Add(after)}
			u := Unit{Processor: "mailer", store: store}
			if records, err := idleRecords(t.Context(), u, "mailer"); (err != nil) != busy ||
				!busy && len(records) != 1 {
				t.Errorf("%s, written %v ago: %v", tt.name, after, err)
			}
		}
	}
}

// surely approves of every deletion.
func surely(Unit, int) (bool, error) { return true, nil }
