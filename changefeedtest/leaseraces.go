package changefeedtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/changefeed"
)

// contend runs a write by 16 clients at once and wants one to win and the others to
// conflict.
func (d *desk) contend(what string, write func(n int) error) {
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
		case !errors.Is(err, changefeed.ErrConflict):
			d.Errorf("%s: %v, want success or ErrConflict", what, err)
		}
	}
	if wins != 1 {
		d.Errorf("%s: %d of %d succeeded", what, wins, len(errs))
	}
}

func raceLeaseCreates(d *desk) {
	for _, l := range []changefeed.Lease{lease("-FF"), {Kind: changefeed.KindLock}} {
		d.contend("concurrent creates", func(int) error { _, err := d.store.Create(d.Context(), l); return err })
	}
}

func raceLeaseUpdates(d *desk) {
	l := d.create(lease("-FF"))
	for range 5 {
		d.contend("concurrent updates", func(n int) error {
			mine := l
			mine.Owner = fmt.Sprint("host", n)
			_, err := d.store.Update(d.Context(), mine)
			return err
		})
		l = d.list()[name(l)]
	}
	d.contend("concurrent deletes", func(int) error {
		err := d.store.Delete(d.Context(), l)
		if errors.Is(err, changefeed.ErrNotFound) {
			return changefeed.ErrConflict // of a delete, the losers may see either
		}
		return err
	})
}

func raceLeaseCounts(d *desk) {
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

// countUp adds one to the only record by conditional updates until it wins.
func countUp(d *desk, store changefeed.LeaseStore) error {
	for {
		records, _, err := store.List(d.Context())
		if err != nil {
			return err
		}
		l := records[0]
		l.Attempts++
		if _, err = store.Update(d.Context(), l); !errors.Is(err, changefeed.ErrConflict) {
			return err
		}
	}
}

func endedLeases(d *desk) {
	l := d.create(lease("-FF"))
	ctx, cancel := context.WithCancel(d.Context())
	cancel()
	_, _, listErr := d.store.List(ctx)
	_, createErr := d.store.Create(ctx, lease("0"))
	_, updateErr := d.store.Update(ctx, l)
	all := map[string]error{"List": listErr, "Create": createErr, "Update": updateErr, "Delete": d.store.Delete(ctx, l)}
	if follower, ok := d.store.(changefeed.Follower); ok {
		_, cursor := d.soonFollow("")
		_, _, _, all["Follow"] = follower.Follow(ctx, cursor)
	}
	for what, err := range all {
		if err == nil || errors.Is(err, changefeed.ErrConflict) || errors.Is(err, changefeed.ErrNotFound) {
			d.Errorf("%s with an ended context: %v, want another error", what, err)
		}
	}
}
