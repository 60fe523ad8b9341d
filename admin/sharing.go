package admin

import (
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// How the instances share the leases, and how they should: by weight, and by number or load.

// weightOf returns the weight of an instance, as the other instances read it.
func weightOf(record feed.Record) int {
	if n := notes.Number(record.Properties, notes.WeightProperty); 0 < n && n <= instance.MaxWeight {
		return int(n)
	}
	return 1
}

// LoadOf returns the load of the lease, as measured by the owner: the changes of the last minute, and the distance to
// the end of the feed in LSNs. Without a measurement, because Options.ShareByLoad is not set, known is false.
func (l *Lease) LoadOf() (load int64, known bool) {
	return l.load(), l.Properties[notes.LoadProperty] != ""
}

func (l *Lease) load() int64 { return notes.Number(l.Properties, notes.LoadProperty) }

// SharesByLoad reports whether the running instances share the leases by load: all of them ask for that, and no other
// kind of processor is at work.
func (l *Listing) SharesByLoad() bool {
	some := false
	for _, i := range l.Instances {
		if i.Presence != Running {
			continue
		}
		if some = true; !i.SharesByLoad {
			return false
		}
	}
	return some && !slices.ContainsFunc(l.Leases, func(l Lease) bool { return l.isForeign() && l.isAtWork() })
}

// addShares adds the parts of the unit that the running instances have, and should have.
func (l *Listing) addShares() {
	byLoad, weights, whole := l.SharesByLoad(), 0, int64(0)
	for _, i := range l.Instances {
		if i.Presence == Running {
			weights += i.Weight
		}
	}
	for i := range l.Leases {
		switch lease := &l.Leases[i]; {
		case lease.Record.State == feed.StateRetired:
		case byLoad:
			whole += lease.load()
		default:
			whole++
		}
	}
	for i := range l.Instances {
		host := &l.Instances[i]
		if host.Presence != Running {
			continue
		}
		host.Due = float64(host.Weight) / float64(weights)
		has := int64(host.Leases)
		if byLoad {
			has = host.Load
		}
		if whole > 0 {
			host.Share = float64(has) / float64(whole)
		}
	}
}
