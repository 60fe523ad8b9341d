package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// An instance has a part of the leases, or of their load if all instances ask for that, and a part that is due to its
// weight.
func TestThePartsOfTheInstancesAreKnown(t *testing.T) {
	now := time.Now()
	lease := func(owner, load string) feed.Record {
		return atWork(now, func(r *feed.Record) {
			r.Owner, r.ID = owner, owner
			r.Properties = map[string]string{notes.LoadProperty: load}
		})
	}
	sharing := func(name, weight, byLoad string) feed.Record {
		r := host(now, name)
		r.Properties = map[string]string{notes.WeightProperty: weight, notes.ByLoadProperty: byLoad}
		return r
	}
	gone, replaced, foreign := sharing("c", "#7", "yes"), lease("c", "#100"), lease("d", "")
	gone.State, replaced.State, foreign.Epoch = feed.StateRetired, feed.StateRetired, ""
	leases := []feed.Record{lease("a", "#30"), lease("b", "#60"), lease("b", "#30"), replaced, gone}
	a, weighted, byLoad := host(now, "a"), sharing("b", "#3", ""), sharing("b", "", "yes")
	const equal = "1: 0.33 of 0.50; 1: 0.67 of 0.50; "
	for name, c := range map[string]struct {
		hosts  []feed.Record
		byLoad bool
		want   string
	}{
		"by number":      {[]feed.Record{a, host(now, "b")}, false, equal},
		"by weight":      {[]feed.Record{a, weighted}, false, "1: 0.33 of 0.25; 3: 0.67 of 0.75; "},
		"an odd weight":  {[]feed.Record{a, sharing("b", "#5000", "")}, false, equal},
		"one by load":    {[]feed.Record{a, byLoad}, false, equal},
		"all by load":    {[]feed.Record{sharing("a", "", "yes"), byLoad}, true, "1: 0.25 of 0.50; 1: 0.75 of 0.50; "},
		"beside another": {[]feed.Record{sharing("a", "", "yes"), foreign}, false, "1: 0.25 of 1.00; "},
	} {
		l := listingOf(now, append(leases[:len(leases):len(leases)], c.hosts...)...)
		var got strings.Builder
		for _, i := range l.Instances {
			if i.Presence == Running {
				got.WriteString(fmt.Sprintf("%d: %.2f of %.2f; ", i.Weight, i.Share, i.Due))
			} else if i.Share != 0 || i.Due != 0 {
				t.Errorf("%s: an instance that has ended has a part of %v", name, i.Share)
			}
		}
		if got.String() != c.want || l.SharesByLoad() != c.byLoad {
			t.Errorf("%s: %q, by load %v, want %q", name, got.String(), l.SharesByLoad(), c.want)
		}
		if load, known := l.Leases[0].LoadOf(); load != 30 || !known {
			t.Errorf("%s: the load is %d, %v, want 30", name, load, known)
		}
	}
	if l := listingOf(now, atWork(now, nil)); l.SharesByLoad() {
		t.Error("a unit without an instance shares by load")
	} else if _, known := l.Leases[0].LoadOf(); known {
		t.Error("a load that nobody has measured is known")
	}
}
