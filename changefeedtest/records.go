package changefeedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Time, foreign documents, and news. The processor trusts a store in these three points and cannot check them: the
// store's clock stamps a record, the store keeps unknown members, and the last version of a record always reaches a
// follower.

// clockCases test the store's clock. All instances judge expiry by this clock, so their own clocks do not matter; a
// store with the writer's time would break this rule.
var clockCases = []leaseCase{
	{name: "the store's clock stamps records, whatever the writer says", test: storeStamps},
	{name: "records age by the store's clock", needs: []Ability{PassingTime}, test: recordsAge},
	{
		name: "a record with a time to live goes when it is not written", needs: []Ability{LeaseExpiry, PassingTime},
		test: recordsExpire,
	},
	{name: "a record without a time to live stays", needs: []Ability{PassingTime}, test: recordsStay},
}

// clockGrain is the allowed rounding of a store's stamps: the service keeps whole seconds.
const clockGrain = 2 * time.Second

// storeStamps writes with times of a writer whose clock is decades ahead.
func storeStamps(d *leaseTest) {
	record := lease("-FF")
	record.Updated = time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)
	record.Timestamp = time.Date(2051, 1, 1, 0, 0, 0, 0, time.UTC)
	created := d.create(record)
	records, now := d.listWithTime()
	listed := records[name(record)]
	if age := now.Sub(listed.Updated); age < -clockGrain || age > time.Hour {
		d.Errorf("a new record was written at %v, the store's time is %v", listed.Updated, now)
	}
	if !created.Updated.Equal(listed.Updated) {
		d.Errorf("Create says written at %v, List says %v", created.Updated, listed.Updated)
	}
}

// recordsAge compares the ages of a record with a recent write and a record without.
func recordsAge(d *leaseTest) {
	first, second := d.create(lease("0")), d.create(lease("1"))
	_, before := d.listWithTime()
	d.passTime(90 * time.Second)
	d.update(second)
	records, now := d.listWithTime()
	near := func(what string, got, want time.Duration) {
		if got < want-clockGrain || got > want+30*time.Second {
			d.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("the time passed by List's clock", now.Sub(before), 90*time.Second)
	near("the age of an untouched record", now.Sub(records[name(first)].Updated), 90*time.Second)
	near("the age of an updated record", now.Sub(records[name(second)].Updated), 0)
}

// recordsExpire writes with a time to live, which each write restarts. Otherwise presence records and locks of dead
// instances would stay for ever.
func recordsExpire(d *leaseTest) {
	for _, record := range []feed.Record{
		{Kind: feed.KindLock, TTL: 30 * time.Second},
		{Kind: feed.KindHost, Token: "h", TTL: 30 * time.Second},
	} {
		held := d.create(record)
		d.passTime(20 * time.Second)
		held = d.update(held)
		if held.TTL != 30*time.Second {
			d.Errorf("time to live of %s is %v after an update, want 30s", name(record), held.TTL)
		}
		d.passTime(20 * time.Second)
		d.wantNames("20 s after an update", d.list(), name(record))
		d.passTime(15 * time.Second)
		d.wantNames("35 s after an update", d.list())
		_, err := d.store.Update(d.Context(), held)
		d.wantErr("Update of an expired record", err, feed.ErrNotFound)
		d.wantErr("Delete of an expired record", d.store.Delete(d.Context(), held), feed.ErrNotFound)
		if d.Failed() {
			return
		}
		d.remove(d.create(record))
	}
}

// recordsStay lets two days pass: a unit may be stopped over a weekend and must keep its positions.
func recordsStay(d *leaseTest) {
	d.create(lease("-FF"))
	d.create(feed.Record{Kind: feed.KindInfo})
	d.passTime(48 * time.Hour)
	d.wantNames("after two days", d.list(), "lease -FF", "info ")
}

// foreignCases test documents of other programs.
var foreignCases = []leaseCase{
	{name: "what a record does not know of its document is kept", needs: []Ability{ForeignWrites}, test: unknownKept},
	{name: "a foreign write makes the ETag stale", needs: []Ability{ForeignWrites}, test: foreignStale},
	{
		name: "a document that is no record is listed with its error", needs: []Ability{ForeignWrites},
		test: brokenListed,
	},
}

// editDocument changes the stored document of a record as another program would.
func (d *leaseTest) editDocument(record feed.Record, change func(members map[string]json.RawMessage)) {
	d.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(record.Raw, &members); err != nil {
		d.Fatalf("Raw of %s is %s: %v", name(record), record.Raw, err)
	}
	change(members)
	text, err := json.Marshal(members)
	if err != nil {
		d.Fatal(err)
	}
	d.Put(d.T, text)
}

// unknownKept adds an unknown member. Updates must keep the member, because a newer version of this processor, or
// another program, may need it.
func unknownKept(d *leaseTest) {
	const note = `{"by":["ops",1.50],"why":null}`
	for _, l := range []feed.Record{
		full("-FF"),
		{Kind: feed.KindHost, Token: "h", Owner: "h"},
		{Kind: "control", Owner: "h"},
	} {
		d.create(l)
		d.editDocument(d.list()[name(l)], func(members map[string]json.RawMessage) {
			members["note"] = json.RawMessage(note)
		})
		record := d.list()[name(l)]
		d.wantSame("after a foreign write", record, l)
		for range 3 { // from the listing, then from the results of the writes
			record.Owner += "x"
			record = d.update(record)
		}
		var stored struct{ Note json.RawMessage }
		if raw := d.list()[name(l)].Raw; json.Unmarshal(raw, &stored) != nil || !sameJSON(stored.Note, note) {
			d.Errorf("after three updates the stored document is %s, want note %s in it", raw, note)
		}
	}
}

// sameJSON compares two texts, except for spaces and the notation of numbers.
func sameJSON(got json.RawMessage, want string) bool {
	var g, w any
	return json.Unmarshal(got, &g) == nil && json.Unmarshal([]byte(want), &w) == nil && fmt.Sprint(g) == fmt.Sprint(w)
}

// foreignStale writes past the owner, whose next write must conflict.
func foreignStale(d *leaseTest) {
	held := d.create(lease("-FF"))
	d.editDocument(d.list()[name(held)], func(members map[string]json.RawMessage) {
		members["note"] = json.RawMessage("1")
	})
	_, err := d.store.Update(d.Context(), held)
	d.wantErr("Update after a foreign write", err, feed.ErrConflict)
	d.wantErr("Delete after a foreign write", d.store.Delete(d.Context(), held), feed.ErrConflict)
}

// brokenListed leaves only the identity of a lease's document. The listing must still contain the other records,
// because a broken document must not stop a fleet.
func brokenListed(d *leaseTest) {
	held := d.create(full("-FF"))
	d.create(lease("0"))
	d.editDocument(d.list()[name(held)], func(members map[string]json.RawMessage) {
		for member := range members {
			if member != "id" && member != "partitionKey" {
				delete(members, member)
			}
		}
	})
	records, _, err := d.store.List(d.Context())
	if err != nil {
		d.Fatalf("List with a broken document: %v", err)
	}
	broken := slices.IndexFunc(records, func(record feed.Record) bool { return record.ID == held.ID })
	if len(records) != 2 || broken < 0 {
		d.Fatalf("List with a broken document: %+v", records)
	}
	record := records[broken]
	if !errors.Is(record.Err, feed.ErrBadLease) || len(record.Raw) == 0 || record.ETag == "" ||
		records[1-broken].Err != nil {
		d.Errorf("a document without members: %+v, want Err, Raw and ETag", record)
	}
	d.remove(record) // so that an operator can clean up
	d.wantNames("after its removal", d.list(), "lease 0")
}

// followCases test [feed.Follower].
var followCases = []leaseCase{
	{name: "following begins with the present, at once", needs: []Ability{Following}, test: followBegins},
	{name: "following returns the changes of every client", needs: []Ability{Following}, test: followChanges},
	{
		name: "following waits for a change, or for the end of its context", needs: []Ability{Following},
		test: followWaits,
	},
	{name: "following sees its own unit alone", needs: []Ability{Following}, test: followUnit},
	{name: "following a record gives its last version last", needs: []Ability{Following}, test: followForward},
	{name: "following never misses a change", needs: []Ability{Following}, test: followRace},
}

// followUntilChanged follows until there are changes, or until the context ends.
func (d *leaseTest) followUntilChanged(ctx context.Context, cursor string) ([]feed.Record, string, error) {
	follower, ok := d.store.(feed.Follower)
	if !ok {
		return nil, "", errors.New("the lease store is no Follower")
	}
	for {
		changed, next, now, err := follower.Follow(ctx, cursor)
		if err != nil || len(changed) > 0 || cursor == "" {
			if err == nil && (now.IsZero() || next == "") {
				err = fmt.Errorf("cursor is %q, the store's time %v: want both set", next, now)
			}
			return changed, next, err
		}
		cursor = next
		if err := wait(ctx, time.Millisecond); err != nil { // Follow may return early
			return nil, next, err
		}
	}
}

// soonFollow is follow for changes that exist or will appear soon.
func (d *leaseTest) soonFollow(cursor string) ([]feed.Record, string) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
	defer cancel()
	changed, next, err := d.followUntilChanged(ctx, cursor)
	if err != nil {
		d.Fatalf("Follow(%q): %v", cursor, err)
	}
	return changed, next
}

// collectRecords follows until all names have appeared, and returns their last records.
func (d *leaseTest) collectRecords(cursor string, names ...string) (map[string]feed.Record, string) {
	d.Helper()
	seen := map[string]feed.Record{}
	for slices.ContainsFunc(names, func(n string) bool { _, ok := seen[n]; return !ok }) {
		var changed []feed.Record
		changed, cursor = d.soonFollow(cursor)
		for _, record := range changed {
			seen[name(record)] = record
		}
	}
	return seen, cursor
}

// followBegins takes the first cursor, which Follow must return at once and without records, because the listing
// contains those.
func followBegins(d *leaseTest) {
	d.create(lease("0"))
	changed, cursor := d.soonFollow("")
	if len(changed) != 0 {
		d.Errorf("Follow with an empty cursor has %d records, want none", len(changed))
	}
	record := d.create(lease("1"))
	changed, _ = d.soonFollow(cursor)
	if len(changed) != 1 || changed[0].Token != "1" || changed[0].ETag != record.ETag {
		d.Errorf("Follow after a create: %+v, want lease 1 with ETag %s", changed, record.ETag)
	}
}

// followChanges follows the writes of two clients. Records from Follow have ETags, so that an instance can take a lease
// without a listing.
func followChanges(d *leaseTest) {
	first, second := d.create(lease("0")), d.create(lease("1"))
	_, start := d.soonFollow("")
	other := *d
	other.store = d.Unit(d.T, "unit")
	first.Owner = "a"
	first = other.update(first)
	host := other.create(feed.Record{Kind: feed.KindHost, Token: "h", Owner: "h", Epoch: "e"})
	gone := d.create(lease("2"))
	d.remove(gone)
	seen, cursor := d.collectRecords(start, name(first), name(host))
	d.wantSame("Follow", seen[name(first)], first)
	if seen[name(first)].ETag != first.ETag || seen[name(host)].ETag != host.ETag {
		d.Errorf("Follow has ETags %s and %s, want %s and %s", seen[name(first)].ETag, seen[name(host)].ETag,
			first.ETag, host.ETag)
	}
	second.Owner = "b"
	second = d.update(second)
	seen, _ = d.collectRecords(cursor, name(second))
	d.wantNames("after the cursor", seen, name(second))
	seen, _ = d.collectRecords(start, name(first), name(host), name(second)) // a cursor can be used again
	d.wantSame("Follow again", seen[name(second)], second)
	d.wantSame("a followed record is good for a write", other.update(seen[name(second)]), second)
}

// followWaits follows while nothing happens. If Follow returned at once, the processor would poll.
func followWaits(d *leaseTest) {
	_, cursor := d.soonFollow("")
	done := make(chan error, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
	defer cancel()
	wg.Go(func() { _, _, err := d.followUntilChanged(ctx, cursor); done <- err })
	d.create(lease("0"))
	if err := <-done; err != nil {
		d.Errorf("Follow while a record is created: %v", err)
	}
	_, cursor = d.collectRecords(cursor, "lease 0")
	cause := errors.New("enough")
	short, stop := context.WithCancelCause(d.Context())
	timer := time.AfterFunc(shortly, func() { stop(cause) })
	defer timer.Stop()
	if changed, _, err := d.followUntilChanged(short, cursor); err == nil {
		d.Errorf("Follow without changes until its context ends: %+v, want an error", changed)
	}
}

// followForward updates a record again and again: an earlier version must not reappear, because a view would show a
// former owner.
func followForward(d *leaseTest) {
	record := d.create(lease("0"))
	_, cursor := d.soonFollow("")
	for n := range 5 {
		record.Attempts = n + 1
		record = d.update(record)
		for newest := false; !newest; {
			var changed []feed.Record
			changed, cursor = d.soonFollow(cursor)
			for _, seen := range changed {
				if newest && seen.ETag != record.ETag {
					d.Errorf("Follow after update %d gives %d attempts after the last version", n, seen.Attempts)
				}
				newest = newest || seen.ETag == record.ETag
			}
		}
	}
}

// followUnit writes records of two units, whose changes share a feed.
func followUnit(d *leaseTest) {
	_, cursor := d.soonFollow("")
	other := *d
	other.store = d.Unit(d.T, "unit2")
	other.create(lease("0"))
	other.create(feed.Record{Kind: feed.KindHost, Token: "h"})
	mine := d.create(lease("1"))
	seen, _ := d.collectRecords(cursor, name(mine))
	d.wantNames("one unit", seen, name(mine))
}

// followRace writes records from many clients while another client follows, until the follower has seen the last
// version of each: after a missed change no instance would take a lease in time.
func followRace(d *leaseTest) {
	const writers, each = 8, 25
	_, cursor := d.soonFollow("")
	var wg sync.WaitGroup
	defer wg.Wait()
	for w := range writers {
		store := d.Unit(d.T, "unit")
		wg.Go(func() {
			record, err := store.Create(d.Context(), lease(fmt.Sprint(w)))
			for record.Attempts < each && err == nil {
				record.Attempts++
				record, err = store.Update(d.Context(), record)
			}
			if err != nil {
				d.Errorf("writer %d: %v", w, err)
			}
		})
	}
	last := map[string]int{}
	for finished := 0; finished < writers; {
		var changed []feed.Record
		changed, cursor = d.soonFollow(cursor)
		for _, record := range changed {
			if record.Attempts < last[record.Token] {
				d.Errorf("lease %s went back from %d to %d", record.Token, last[record.Token], record.Attempts)
			}
			if record.Attempts == each && last[record.Token] < each {
				finished++
			}
			last[record.Token] = max(last[record.Token], record.Attempts)
		}
	}
	if got := strings.Count(fmt.Sprint(last), fmt.Sprint(":", each)); got != writers {
		d.Errorf("the follower saw %v, want %d of each", last, each)
	}
}
