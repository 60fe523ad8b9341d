package changefeedtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/changefeed/feed"
)

// Races for a record. Two winners with the same ETag would be two owners of a lease, and no later check of the
// processor could find them; so here every race is counted.

// runContended makes 16 clients write at the same time. Exactly one must win; the others must conflict.
func (d *leaseTest) runContended(what string, write func(n int) error) {
	d.Helper()
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for n := range errs {
		wg.Go(func() { errs[n] = write(n) })
	}
	wg.Wait()
	wins := 0
	for _, err := range errs {
		switch {
		case err == nil:
			wins++
		case !errors.Is(err, feed.ErrConflict):
			d.Errorf("%s: %v, want success or ErrConflict", what, err)
		}
	}
	if wins != 1 {
		d.Errorf("%s: %d of %d succeeded", what, wins, len(errs))
	}
}

// raceLeaseCreates makes all clients create the same record: two winners would be two owners of a lock.
func raceLeaseCreates(d *leaseTest) {
	for _, record := range []feed.Record{lease("-FF"), {Kind: feed.KindLock}} {
		d.runContended("concurrent creates", func(int) error {
			_, err := d.store.Create(d.Context(), record)
			return err
		})
	}
}

// raceLeaseUpdates makes all clients take the same lease, again and again, and then delete it.
func raceLeaseUpdates(d *leaseTest) {
	record := d.create(lease("-FF"))
	for range 5 {
		d.runContended("concurrent updates", func(n int) error {
			mine := record
			mine.Owner = fmt.Sprint("host", n)
			_, err := d.store.Update(d.Context(), mine)
			return err
		})
		record = d.list()[name(record)]
	}
	d.runContended("concurrent deletes", func(int) error {
		err := d.store.Delete(d.Context(), record)
		if errors.Is(err, feed.ErrNotFound) {
			return feed.ErrConflict // the losers of a delete may see either error
		}
		return err
	})
}

// raceLeaseCounts counts by conditional updates: a lost update shows in the sum.
func raceLeaseCounts(d *leaseTest) {
	const clients, each = 6, 12
	first := d.create(lease("-FF"))
	var wg sync.WaitGroup
	for range clients {
		store := d.Unit(d.T, "unit")
		wg.Go(func() {
			for range each {
				if err := countUp(d, store); err != nil {
					d.Errorf("count up: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := d.list()[name(first)].Attempts; got != clients*each {
		d.Errorf("%d after %d concurrent counts", got, clients*each)
	}
}

// countUp adds 1 to the only record by conditional updates until an update succeeds.
func countUp(d *leaseTest, store feed.LeaseStore) error {
	for {
		records, _, err := store.List(d.Context())
		if err != nil {
			return err
		}
		record := records[0]
		record.Attempts++
		if _, err = store.Update(d.Context(), record); !errors.Is(err, feed.ErrConflict) {
			return err
		}
	}
}

// endedLeases calls each method with an ended context. The error must not be a conflict or ErrNotFound, which a
// processor would take for the loss of the lease.
func endedLeases(d *leaseTest) {
	record := d.create(lease("-FF"))
	ctx, cancel := context.WithCancel(d.Context())
	cancel()
	_, _, listErr := d.store.List(ctx)
	_, createErr := d.store.Create(ctx, lease("0"))
	_, updateErr := d.store.Update(ctx, record)
	all := map[string]error{
		"List": listErr, "Create": createErr, "Update": updateErr,
		"Delete": d.store.Delete(ctx, record),
	}
	if follower, ok := d.store.(feed.Follower); ok {
		_, cursor := d.soonFollow("")
		_, _, _, all["Follow"] = follower.Follow(ctx, cursor)
	}
	for what, err := range all {
		if err == nil || errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrNotFound) {
			d.Errorf("%s with an ended context: %v, want another error", what, err)
		}
	}
}
