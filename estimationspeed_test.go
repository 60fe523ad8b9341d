package changefeed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// manyPartitions is a source of many partitions without counts, in each of which one change waits.
type manyPartitions struct{ all []feed.Partition }

func (s manyPartitions) Partitions(context.Context) ([]feed.Partition, error) { return s.all, nil }

func (s manyPartitions) Read(context.Context, feed.Range, feed.Position, feed.ReadOptions) (feed.Page, error) {
	return feed.Page{
		Changes: []feed.Change{{ID: "a", LSN: 1, Time: time.Unix(1, 0)}}, Head: 1, Next: feed.At("1"),
	}, nil
}

// listedAlone is a lease store that has only a listing.
type listedAlone struct {
	feed.LeaseStore
	all []feed.Record
}

func (s listedAlone) List(context.Context) ([]feed.Record, time.Time, error) {
	return s.all, time.Unix(9, 0), nil
}

// The cost of an estimate grows with the number of the leases, not with its square.
func BenchmarkEstimateWithoutCounts(b *testing.B) {
	for _, n := range []int{250, 1000, 4000} {
		b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) {
			var source manyPartitions
			var leases listedAlone
			for i, r := range feed.FullRange().Cut(n) {
				source.all = append(source.all, feed.Partition{ID: fmt.Sprint(i), Range: r})
				leases.all = append(leases.all, feed.Record{
					ID: "x.." + r.String(), Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r,
					Position: feed.At("0"),
				})
			}
			b.ReportAllocs()
			for b.Loop() {
				if got, err := changefeed.Estimate(b.Context(), source, leases); err != nil || len(got) != n ||
					got[n-1].Pending != 1 {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}
