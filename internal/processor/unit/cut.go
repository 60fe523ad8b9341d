package unit

import (
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How a running unit receives more leases
//
// If an instance asks for more leases than the unit has, the leases with the widest ranges are cut. Each instance plans
// all cuts and carries out those of its own leases. The worker ends, and stores the lease as splitting, with the parts:
// from then on everything is as after a split of partitions whose owner died before it made the first child, see
// tenure/split.go. A paused lease has no worker, so it is cut when the pause is over. A lease behind a fence is not
// cut, because the parts would begin at once.
//
// The plan needs leases that tile the key space, without a lease that is splitting: otherwise the number of leases is
// about to change. While another kind of processor owns a lease, nothing is cut, because such a processor may take a
// lease that is splitting, and would work beside the owners of the parts.

// cutLeases makes our workers cut their leases, if the unit should have more leases, and returns how many do.
func (b *balancer) cutLeases(s situation) (n int) {
	if len(s.leases) >= s.least || b.in.Shared.Load() || !isTiled(s.leases) {
		return 0
	}
	widths := make([]float64, len(s.leases))
	for i, lease := range s.leases {
		widths[i] = keyspace.Width(lease.Range)
	}
	for i, parts := range balance.Parts(widths, s.least) {
		lease := s.leases[i]
		held, _ := b.in.Claims.Held(lease.Range)
		if len(lease.Range.Cut(parts)) > 1 && held != nil && lease.Version == 1 && records.OwnerOf(lease) == b.in.Me &&
			!lease.Fence.After(b.planned) && held.Stop(instance.Ending{Why: feed.ReasonSplit, Into: parts}) {
			n++
		}
	}
	return n
}

// isTiled reports whether leases tile the key space and none of them is splitting.
func isTiled(leases []feed.Record) bool {
	at := ""
	for _, lease := range leases { // ordered by Range.Min
		if lease.Range.Min != at || lease.State != feed.StateLive {
			return false
		}
		at = lease.Range.Max
	}
	return at == feed.FullRange().Max
}
