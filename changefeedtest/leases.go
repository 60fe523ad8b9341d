package changefeedtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// TestLeaseStore proves a [feed.LeaseStore], and its [feed.Follower] if the store has that ability, against every
// sentence of their documentation. The promise of a single owner rests on these properties alone: the processor adds no
// other lock.
func TestLeaseStore(t *testing.T, h Harness) {
	for _, c := range slices.Concat(recordCases, kindCases, clockCases, foreignCases, followCases) {
		t.Run(c.name, func(t *testing.T) { c.run(t, h) })
	}
}

// leaseCase is a test on a new lease container.
type leaseCase struct {
	name  string
	needs []Ability
	test  func(d *leaseTest)
}

// run runs the case, unless the store lacks a necessary ability. If the store has an ability and the harness denies
// this, run reports an error, because the tests of the ability would be skipped silently.
func (c leaseCase) run(t *testing.T, h Harness) {
	if !h.hasAll(t, c.needs) {
		return
	}
	h.runIn(t, func(t *testing.T) {
		d := &leaseTest{T: t, h: h, LeaseContainer: h.Leases(t)}
		d.store = d.Unit(t, "unit")
		_, follows := d.store.(feed.Follower)
		for _, a := range c.needs {
			needHook(t, a != Following || follows, "the lease store is no Follower", a)
			needHook(t, a != ForeignWrites || d.Put != nil, "LeaseContainer.Put is nil", a)
			needHook(t, a != DeleteRights || d.WithoutDelete != nil, "LeaseContainer.WithoutDelete is nil", a)
		}
		if follows && h.lacksAbility(Following) {
			t.Fatalf("the lease store is a Follower, which Lacks denies: %v", h.Lacks)
		}
		c.test(d)
	})
}

// leaseTest is a lease container under test, with a client of a unit. Its methods end the test at the first unexpected
// error.
type leaseTest struct {
	*testing.T
	h Harness
	LeaseContainer
	store feed.LeaseStore
}

func (d *leaseTest) passTime(p time.Duration) { d.Helper(); d.h.passTime(d.T, p) }

// create creates a record, and expects all written fields in the answer.
func (d *leaseTest) create(record feed.Record) feed.Record {
	d.Helper()
	created, err := d.store.Create(d.Context(), record)
	if err != nil {
		d.Fatalf("Create(%v %s): %v", record.Kind, record.Token, err)
	}
	d.wantSame("Create", created, record)
	return created
}

// update replaces a record, and expects all written fields in the answer.
func (d *leaseTest) update(record feed.Record) feed.Record {
	d.Helper()
	updated, err := d.store.Update(d.Context(), record)
	if err != nil {
		d.Fatalf("Update(%v %s): %v", record.Kind, record.Token, err)
	}
	d.wantSame("Update", updated, record)
	return updated
}

func (d *leaseTest) remove(record feed.Record) {
	d.Helper()
	if err := d.store.Delete(d.Context(), record); err != nil {
		d.Fatalf("Delete(%v %s): %v", record.Kind, record.Token, err)
	}
}

// list returns the records by kind and token.
func (d *leaseTest) list() map[string]feed.Record {
	d.Helper()
	records, _ := d.listWithTime()
	return records
}

// listWithTime returns the records by kind and token, which together identify a record, and the store's time, which
// decides about expiry.
func (d *leaseTest) listWithTime() (map[string]feed.Record, time.Time) {
	d.Helper()
	records, now, err := d.store.List(d.Context())
	if err != nil {
		d.Fatalf("List: %v", err)
	}
	if now.IsZero() {
		d.Fatal("List: the store's time is zero")
	}
	byName := map[string]feed.Record{}
	for _, record := range records {
		if _, twice := byName[name(record)]; twice {
			d.Errorf("List has %s twice", name(record))
		}
		byName[name(record)] = record
	}
	return byName, now
}

func name(record feed.Record) string { return string(record.Kind) + " " + record.Token }

// wantNames compares which records exist.
func (d *leaseTest) wantNames(what string, got map[string]feed.Record, want ...string) {
	d.Helper()
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
		d.Errorf("%s: records %q, want %q", what, names, want)
	}
}

// wantSame compares records, and checks the store's fields.
func (d *leaseTest) wantSame(what string, got, want feed.Record) {
	d.Helper()
	if got.Err != nil {
		d.Errorf("%s(%s): Err = %v", what, name(want), got.Err)
	}
	if got.ID == "" || got.ETag == "" || got.Updated.IsZero() {
		d.Errorf("%s(%s): ID %q, ETag %q, Updated %v: want all set by the store", what, name(want), got.ID, got.ETag,
			got.Updated)
	}
	if g, w := said(got), said(want); g != w {
		d.Errorf("%s(%s)\n got %s\nwant %s", what, name(want), g, w)
	}
}

// said returns the fields of a record that its writer sets, if the kind gives them a meaning, in the precision of a
// document.
func said(record feed.Record) string {
	all := fmt.Sprintf("%v %q owner %q epoch %q state %v expiration %v properties %q",
		record.Kind, record.Token, record.Owner, record.Epoch, record.State, record.Expiration, record.Properties)
	if record.Kind != feed.KindLease {
		return all
	}
	return all + fmt.Sprintf(" range %v version %d position %q from %v mode %d attempts %d fence %d timestamp %v",
		record.Range, record.Version, record.Position.Token, record.Position.Start, record.Mode, record.Attempts,
		record.Fence.UnixMilli(), record.Timestamp.UTC().Truncate(time.Microsecond))
}

// wantErr compares an error.
func (d *leaseTest) wantErr(what string, got, want error) {
	d.Helper()
	if !errors.Is(got, want) {
		d.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantStale expects the refusal of a write with another ETag than the stored one. If no store ever returns such an
// ETag, the error may also be a bad request, provided that nothing is written.
func (d *leaseTest) wantStale(what string, got error) {
	d.Helper()
	if !errors.Is(got, feed.ErrConflict) && !errors.Is(got, feed.ErrBadRequest) {
		d.Errorf("%s: %v, want %v", what, got, feed.ErrConflict)
	}
}

// lease returns a new lease on a range.
func lease(token string) feed.Record {
	record := feed.Record{Kind: feed.KindLease, Token: token}
	if r, err := feed.ParseRange(token); err == nil {
		record.Range, record.Version = r, 1
	}
	return record
}

// full returns a lease with every field set: a store that keeps only known fields would lose those of the next version.
func full(token string) feed.Record {
	record := lease(token)
	at := time.Date(2026, 3, 4, 23, 55, 16, 523351000, time.UTC)
	record.Owner, record.Epoch = "host/é <1>", "e7"
	record.Position = feed.Position{Token: `"1083"`, Start: feed.FromTime(at)}
	record.Mode, record.Attempts, record.State = feed.AllVersionsAndDeletes, 3, feed.StateSplitting
	record.Fence, record.Timestamp, record.Expiration = at.Truncate(time.Millisecond), at, 90*time.Second
	record.Properties = map[string]string{"team": "red", "note \"x\"": "<a&b>"}
	return record
}

// recordCases test each method.
var recordCases = []leaseCase{
	{name: "a new unit has no records, and the store has a clock", test: func(d *leaseTest) {
		d.wantNames("new unit", d.list())
	}},
	{name: "a record comes back as it was written", test: recordsComeBack},
	{name: "create refuses what is there", test: createConflict},
	{name: "update refuses a stale ETag, and the stored record stays", test: updateConflict},
	{name: "update and delete of what is gone tell so", test: goneRecords},
	{name: "delete refuses a stale ETag", test: deleteConflict},
	{name: "delete without the right is forbidden", needs: []Ability{DeleteRights}, test: deleteForbidden},
	{name: "many records are all listed", test: manyListed},
	{name: "a listing has every write that was acknowledged before it", test: listsAtOnce},
	{name: "instances may have any name", test: anyInstance},
	{name: "clients of one unit share it, units do not see each other", test: unitsApart},
	{name: "of concurrent creates one wins", test: raceLeaseCreates},
	{name: "of concurrent updates one wins", test: raceLeaseUpdates},
	{name: "concurrent updates lose none", test: raceLeaseCounts},
	{name: "requests with an ended context are errors", test: endedLeases},
}

// recordsComeBack writes records of each kind, with all fields and with none, and clears fields again. If a store could
// not clear a field, a released lease would stay owned.
func recordsComeBack(d *leaseTest) {
	for _, record := range []feed.Record{
		lease("0"), lease("-FF"), lease("05C1CFFFFFFFF8-0BF333333333"), full("12"), full("1F-3F"),
		{
			Kind: feed.KindHost, Token: "h1", Owner: "h1", Epoch: "e1", Expiration: time.Minute,
			Properties: map[string]string{"weight": "2"},
		},
		{Kind: feed.KindInfo},
		{Kind: feed.KindLock, Owner: "h1", Epoch: "e1"},
	} {
		created := d.create(record)
		d.wantSame("List", d.list()[name(record)], record)
		created.Owner, created.Epoch, created.Properties = "another", "e2", map[string]string{"other": "1"}
		updated := d.update(created)
		if updated.ETag == created.ETag || updated.ID != created.ID {
			d.Errorf("Update(%s): ETag %s and ID %s after %s and %s", name(record), updated.ETag, updated.ID,
				created.ETag, created.ID)
		}
		listed := d.list()[name(record)]
		d.wantSame("List after an update", listed, created)
		if listed.ETag != updated.ETag || !listed.Updated.Equal(updated.Updated) {
			d.Errorf("List(%s): ETag %s at %v, want those of the update, %s at %v", name(record), listed.ETag,
				listed.Updated, updated.ETag, updated.Updated)
		}
		updated.Owner, updated.Epoch, updated.Properties = "", "", map[string]string{}
		updated.Position, updated.Attempts, updated.State = feed.Position{}, 0, feed.StateLive
		updated.Fence, updated.Expiration = time.Time{}, 0
		d.update(updated) // a result can be used for the next write
		d.wantSame("List after a release", d.list()[name(record)], updated)
	}
}

// createConflict creates a record twice. Two instances that make the leases of a unit at the same time must end with a
// single set, and the ETag of a deleted record must not match its successor.
func createConflict(d *leaseTest) {
	first := d.create(full("-FF"))
	_, err := d.store.Create(d.Context(), lease("-FF"))
	d.wantErr("Create of what is there", err, feed.ErrConflict)
	d.wantSame("List", d.list()[name(first)], first)
	d.remove(first)
	second := d.create(lease("-FF"))
	_, err = d.store.Update(d.Context(), first)
	d.wantErr("Update with the ETag of the record before", err, feed.ErrConflict)
	d.wantSame("List", d.list()[name(second)], lease("-FF"))
}

// updateConflict updates with old, wrong and empty ETags. An instance that has lost its lease has such an ETag, and its
// write would move the new owner's position back.
func updateConflict(d *leaseTest) {
	first := d.create(lease("-FF"))
	second := first
	second.Owner = "a"
	second = d.update(second)
	for _, etag := range []string{first.ETag, `"nonsense"`, "*", ""} {
		stale := second
		stale.Owner, stale.ETag = "thief", etag
		_, err := d.store.Update(d.Context(), stale)
		d.wantStale(fmt.Sprintf("Update with ETag %q", etag), err)
	}
	listed := d.list()[name(first)]
	d.wantSame("List", listed, second)
	if listed.ETag != second.ETag {
		d.Errorf("ETag is %s after refused updates, want %s", listed.ETag, second.ETag)
	}
}

// goneRecords writes deleted records. The error must be ErrNotFound, and nothing may be created, because otherwise an
// update would restore the lease of a split partition.
func goneRecords(d *leaseTest) {
	for _, record := range []feed.Record{lease("-FF"), {Kind: feed.KindHost, Token: "h"}, {Kind: feed.KindLock}} {
		gone := d.create(record)
		d.remove(gone)
		_, err := d.store.Update(d.Context(), gone)
		d.wantErr("Update of "+name(record)+", which is gone", err, feed.ErrNotFound)
		d.wantErr("Delete of "+name(record)+", which is gone", d.store.Delete(d.Context(), gone), feed.ErrNotFound)
		d.wantNames("after the delete", d.list())
	}
}

// deleteConflict deletes with old and empty ETags: such a delete must not remove the lease of another owner.
func deleteConflict(d *leaseTest) {
	first := d.create(lease("-FF"))
	second := d.update(first)
	for _, etag := range []string{first.ETag, "*", ""} {
		stale := second
		stale.ETag = etag
		d.wantStale(fmt.Sprintf("Delete with ETag %q", etag), d.store.Delete(d.Context(), stale))
	}
	d.wantNames("after refused deletes", d.list(), name(first))
	if d.Failed() {
		return
	}
	d.remove(second)
	d.wantNames("after the delete", d.list())
}

// deleteForbidden deletes without the right. The error must be ErrForbidden: the processor then retires leases instead
// of deleting them.
func deleteForbidden(d *leaseTest) {
	record := d.create(lease("-FF"))
	limited := d.WithoutDelete(d.T, "unit")
	d.wantErr("Delete without the right", limited.Delete(d.Context(), record), feed.ErrForbidden)
	record.Owner = "a"
	record, err := limited.Update(d.Context(), record)
	if err != nil {
		d.Errorf("Update without the right to delete: %v", err)
	}
	d.remove(record)
}

// manyListed lists more records than a page of most stores contains. A short listing looks like a hole in the key
// space.
func manyListed(d *leaseTest) {
	var want []string
	for i := range 250 {
		want = append(want, name(d.create(lease(fmt.Sprint(i)))))
	}
	d.wantNames("250 leases", d.list(), want...)
}

// listsAtOnce writes with a client and lists with others. If a listing lagged, an instance could take a renewed lease,
// or decide by a former owner.
func listsAtOnce(d *leaseTest) {
	record := d.create(lease("-FF"))
	for n := range 20 {
		record.Attempts = n + 1
		record = d.update(record)
		reader := *d
		reader.store = d.Unit(d.T, "unit")
		if seen := reader.list()[name(record)]; seen.ETag != record.ETag {
			d.Fatalf("List by another client after update %d: ETag %s, want %s", n, seen.ETag, record.ETag)
		}
	}
}

// anyInstance writes presence records with many kinds of names, because other people choose the names of hosts, pods
// and services.
func anyInstance(d *leaseTest) {
	var want []string
	for _, token := range []string{
		"pod-7", "pod-77", "a/b", `a\b?c#d%2F`, "é 中 😀", "o'neil \"x\"", "..0", ".lock",
		"a.host.b",
	} {
		record := feed.Record{Kind: feed.KindHost, Token: token, Owner: token, Epoch: "e"}
		d.update(d.create(record))
		want = append(want, name(record))
	}
	d.wantNames("hosts", d.list(), want...)
}

// unitsApart uses names which begin other names. A listing by prefix would mix such units up.
func unitsApart(d *leaseTest) {
	units := map[string]feed.LeaseStore{}
	for i, processor := range []string{
		"app", "app2", "ap", "app.", "app..0", "app.host.h", "app.lock", "o'neil", "App",
		"app ",
	} {
		d.store = d.Unit(d.T, processor)
		units[processor] = d.store
		d.wantNames("new unit "+processor, d.list())
		d.create(lease(fmt.Sprint(i)))
		d.create(feed.Record{Kind: feed.KindHost, Token: fmt.Sprint(i)})
		d.create(feed.Record{Kind: feed.KindInfo})
		d.create(feed.Record{Kind: feed.KindLock})
		d.store = d.Unit(d.T, processor) // another client
		d.wantNames("unit "+processor, d.list(), fmt.Sprint("lease ", i), fmt.Sprint("host ", i), "info ", "lock ")
	}
	for processor, store := range units {
		d.store = store
		if got := d.list(); len(got) != 4 {
			d.Errorf("unit %s has %d records, want 4: %v", processor, len(got), slices.Collect(maps.Keys(got)))
		}
	}
}
