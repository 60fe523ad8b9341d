package cosmosrest

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Raising the throughput of a container splits its partitions, because a partition has at most 10,000 RU/s. As in the
// service, the container stays online, and the offer says that the replace is pending until the last split is done.
// The request that replaced the offer does the splits after its answer. If the server ends before the last split, the
// next read of the offer goes on with them.

// needsSplits reports whether a container has fewer partitions than the throughput of its offer needs. The throughput
// of a database splits nothing, because its containers share it.
func needsSplits(ctx context.Context, s *Server, o owned) bool {
	cont, err := s.db.Container(o.container)
	if o.container == "" || err != nil {
		return false
	}
	parts, err := cont.Partitions(ctx)
	return err == nil && len(parts) < o.ranges()
}

// splitAfterAnswer splits partitions until there are enough, and then marks the offer as complete. The client has its
// answer already, so errors are logged. Only a single request splits the partitions of a container at a time.
func splitAfterAnswer(c *call, o owned) {
	if _, busy := c.s.growing.LoadOrStore(o.rid, true); busy {
		return
	}
	defer c.s.growing.Delete(o.rid)
	_ = c.out.Control().Flush() // not every server supports flushing
	ctx := context.WithoutCancel(c.ctx)
	err := splitUntilEnough(ctx, c.s, o)
	if err == nil && c.s.goesOn() {
		err = c.s.updateOffer(ctx, o, func(now *offer) error {
			now.Growing = needsSplits(ctx, c.s, owned{offer: now, container: o.container})
			return nil
		})
	}
	if err != nil {
		c.s.log.Error("partitions could not be split for a higher throughput", "container", o.container, "err", err)
	}
}

// goesOn reports whether the server has not been told to end.
func (s *Server) goesOn() bool { return s.o.Ending == nil || s.o.Ending.Err() == nil }

// splitUntilEnough splits partitions of the container, one at a time.
func splitUntilEnough(ctx context.Context, s *Server, o owned) error {
	cont, err := s.db.Container(o.container)
	for err == nil && s.goesOn() && needsSplits(ctx, s, o) {
		err = splitWidest(ctx, cont)
	}
	return err
}

// splitWidest splits the partition with the fewest ancestors, which has the widest range if each split halves a range.
func splitWidest(ctx context.Context, cont *docstore.Container) error {
	parts, err := cont.Partitions(ctx)
	if err != nil {
		return err
	}
	widest := slices.MinFunc(parts, func(a, b feed.Partition) int {
		return cmp.Compare(len(a.Parents), len(b.Parents))
	})
	_, err = cont.Split(ctx, widest.ID)
	return err
}
