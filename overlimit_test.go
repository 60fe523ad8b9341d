package changefeed_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// An instance that was given a lease above its limit keeps it if all instances are full, because nobody else would own
// it, and says so.
func TestALeaseAboveTheLimitIsKeptAndReported(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.cutLeases(5)
		o := changefeed.Options{Start: feed.FromBeginning(), MaxLeases: 2}
		a, b := w.run("a", &tally{}, o), w.run("b", &tally{}, o)
		time.Sleep(5 * time.Minute)
		var mine, free feed.Record
		for _, l := range w.records(feed.KindLease) {
			switch {
			case l.Free():
				free = l
			case l.Owner == "a":
				mine = l
			}
		}
		const says = "this instance keeps 3 leases, and its Options.MaxLeases is 2"
		told := func(p *process) (is bool) {
			for _, err := range p.errs.all() {
				is = is || strings.Contains(err.Error(), says)
			}
			return is
		}
		if mine.ID == "" || free.ID == "" || told(a) {
			t.Fatalf("a has %q, free is %q, over its limit: %v", mine.ID, free.ID, told(a))
		}
		free.Owner, free.Epoch, free.Timestamp = mine.Owner, mine.Epoch, time.Now()
		if _, err := w.leases.Update(t.Context(), free); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if l, _ := w.record(free.ID); l.Owner != "a" || !told(a) || told(b) {
			t.Errorf("the lease belongs to %q, a says so: %v, b: %v", l.Owner, told(a), told(b))
		}
		a.stop(t)
		b.stop(t)
	})
}
