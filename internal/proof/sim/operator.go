package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// removeDocument deletes a document of the unit, as an operator might who takes it for waste. The
// delete has no condition on an ETag, because such a tool has none.
func (w *world) removeDocument() {
	present, err := w.lobby.Snapshot(w.ctx)
	if err != nil {
		w.ledger.fail("documents of the unit: %v", err)
		return
	}
	defer present.Close()
	var found []docstore.Item
	for item, err := range present.WithIDs(w.ctx, w.unit.Prefix()+".", 0) {
		if err != nil {
			w.ledger.fail("documents of the unit: %v", err)
			return
		}
		if isLease := strings.HasPrefix(item.ID, w.unit.Prefix()+".."); isLease == (w.weather.removal == ofLeases) {
			found = append(found, item)
		}
	}
	if len(found) == 0 {
		return
	}
	item := found[w.rng.IntN(len(found))]
	w.ledger.note("an operator deletes %s", item.ID)
	if err := w.lobby.Delete(w.ctx, feed.Key(item.ID), item.ID, ""); err != nil {
		w.ledger.fail("delete: %v", err)
	}
	w.refreshModel()
	if w.steerer != nil {
		w.ledger.noteRequestRemoved(item.ID)
	}
}

// refreshModel brings the model up to date with changes of the leases that none of our processes
// has made.
func (w *world) refreshModel() {
	records, _, err := w.unit.List(w.ctx)
	if err != nil {
		w.ledger.fail("list: %v", err)
		return
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	m := w.ledger.model.leases
	for token, l := range m {
		if !slices.ContainsFunc(records, func(r feed.Record) bool { return r.ID == l.ID }) {
			w.ledger.model.deleted = append(w.ledger.model.deleted, l.Record)
			delete(m, token)
		}
	}
	for _, record := range records {
		if record.Kind == feed.KindLease && record.State != feed.StateRetired && m[record.Token].ETag != record.ETag {
			m[record.Token] = kept{record, nil}
		}
	}
}

// stepStore moves the clock of the lease container: back as far as it likes, forward by
// less than the margin by which an owner gives up before others may take its lease. A
// larger step forward breaks the promise of one owner, and no lease store's clock does
// that.
func (w *world) stepStore() {
	if !w.isReady() {
		return // where the unit began is recorded by this clock
	}
	least := defaultExpiration
	for _, i := range w.living() {
		least = min(least, i.opts.Expiration)
	}
	by := time.Duration(w.rng.Int64N(int64(least / 12)))
	if w.rng.IntN(2) == 0 {
		by = -time.Duration(w.rng.Int64N(int64(time.Minute)))
	}
	w.ledger.note("clock of the lease container steps by %v", by)
	w.clock.step(by)
	w.noteStorm(time.Now().Add(max(0, -by)))
}

// isReady reports whether the unit has leases.
func (w *world) isReady() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}
