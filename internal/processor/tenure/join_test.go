package tenure

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
)

// A page that goes beyond the LSN of the neighbour ends there.
func TestAPageIsCutAtTheLSNOfTheNeighbour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := instancetest.Idle(t.Context(), &shelf{}, instance.Options{})
		lease := made(feed.FullRange(), 5, 1)
		w := newWorker(r, lease, time.Now(), false)
		defer w.keeper.fuse.Stop()
		defer w.held.Lose(feed.ErrLeaseLost)
		since := feed.FromTime(time.Now())
		for _, c := range []struct {
			next string
			end  int64
			want []int64
			at   string
		}{
			{`"9"`, 9, []int64{6, 7, 7, 9}, `"9"`},
			{`"9"`, 12, []int64{6, 7, 7, 9}, `"9"`},
			{`"9"`, 8, []int64{6, 7, 7}, `"8"`},
			{`"9"`, 7, []int64{6, 7, 7}, `"7"`},
			{`"9"`, 5, nil, `"5"`},
			{`"20"`, 12, []int64{6, 7, 7, 9}, `"12"`},
		} {
			page := feed.Page{Next: feed.Position{Token: c.next, Start: since}}
			for _, lsn := range []int64{6, 7, 7, 9} {
				page.Changes = append(page.Changes, feed.Change{LSN: lsn})
			}
			cut, ok := join{w: w}.cutPage(page, c.end)
			var got []int64
			for _, change := range cut.Changes {
				got = append(got, change.LSN)
			}
			if !ok || !slices.Equal(got, c.want) || cut.Next != (feed.Position{Token: c.at, Start: since}) {
				t.Errorf("a page up to %s, cut at %d: %v, then %v, %v; want %v, then %s", c.next, c.end, got, cut.Next,
					ok, c.want, c.at)
			}
		}
		if _, ok := (join{w: w}).cutPage(feed.Page{Next: feed.At("somewhere")}, 5); ok {
			t.Error("a page with a token without an LSN is cut")
		}
	})
}

// growing is a source with a change for each LSN, of which a read shows one.
type growing struct {
	instancetest.Counted
	last  int64
	reads int
}

func (g *growing) Read(_ context.Context, _ feed.Range, from feed.Position, _ feed.ReadOptions) (feed.Page, error) {
	g.reads++
	lsn, _ := g.TokenLSN(from.Token)
	page := feed.Page{Next: from, Head: g.last}
	if lsn < g.last {
		page.Next.Token = g.TokenAfter(lsn + 1)
	}
	return page, nil
}

// A worker that is behind its neighbour reads up to the neighbour's position and no further, and gives up in time if
// the feed does not come that far.
func TestTheWorkerBehindReadsUpToItsNeighbour(t *testing.T) {
	for _, c := range []struct {
		last, lsn, end int64
		want           bool
		reads          int
	}{{20, 5, 5, true, 0}, {20, 5, 9, true, 4}, {20, 9, 5, true, 0}, {7, 5, 9, false, -1}} {
		synctest.Test(t, func(t *testing.T) {
			r := instancetest.Idle(t.Context(), &shelf{}, instance.Options{})
			source := &growing{last: c.last}
			r.Source = source
			w := newWorker(r, made(feed.FullRange(), int(c.lsn), 1), time.Now(), false)
			defer w.keeper.fuse.Stop()
			defer w.held.Lose(feed.ErrLeaseLost)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			got := (join{w: w}).readUpTo(ctx, c.lsn, c.end)
			if got != c.want || c.reads >= 0 && source.reads != c.reads {
				t.Errorf("from %d up to %d, of %d: %v after %d reads, want %v after %d", c.lsn, c.end, c.last, got,
					source.reads, c.want, c.reads)
			}
		})
	}
}
