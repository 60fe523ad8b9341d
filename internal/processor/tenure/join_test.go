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
	"github.com/millrace/changefeed/internal/processor/records"
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

// dated is a source with a change at some LSNs, each of a time. A read shows a change, or moves on by an LSN.
type dated struct {
	instancetest.Counted
	head    int64
	changes map[int64]time.Time
}

func (d *dated) Read(_ context.Context, _ feed.Range, from feed.Position, _ feed.ReadOptions) (feed.Page, error) {
	lsn, _ := d.TokenLSN(from.Token)
	page := feed.Page{Next: from, Head: d.head}
	if lsn == d.head {
		return page, nil
	}
	page.Next.Token = d.TokenAfter(lsn + 1)
	if at, ok := d.changes[lsn+1]; ok && !at.Before(from.Start.Time()) {
		page.Changes = []feed.Change{{LSN: lsn + 1, Time: at}}
	}
	return page, nil
}

// A lease has come beyond its start if each change after its position, also one to come, was committed at the start or
// later.
func TestALeaseComesBeyondItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now().Add(-time.Hour)
		for _, c := range []struct {
			what    string
			since   time.Time
			head    int64
			changes map[int64]time.Time
			want    bool
		}{
			{"the next change is later", start, 9, map[int64]time.Time{6: start.Add(time.Second)}, true},
			{"the next change is of that time", start, 9, map[int64]time.Time{6: start}, true},
			{"the next change is older", start, 9, map[int64]time.Time{6: start.Add(-time.Second)}, false},
			{"after some empty pages, a later one", start, 9, map[int64]time.Time{8: start.Add(time.Second)}, true},
			{"after some empty pages, an older one", start, 9, map[int64]time.Time{8: start.Add(-1)}, false},
			{"there is none", start, 9, nil, true},
			{"the end of the feed", start, 5, nil, true},
			{"the end of the feed, and a start to come", time.Now().Add(time.Hour), 5, nil, false},
			{"a feed whose end is far away", start, 1000, nil, false},
		} {
			r := instancetest.Idle(t.Context(), &shelf{}, instance.Options{})
			r.Source = &dated{head: c.head, changes: c.changes}
			r.View.Heard(nil, time.Now())
			lease := made(feed.FullRange(), 5, 1)
			lease.Position.Start = feed.FromTime(c.since)
			w := newWorker(r, lease, time.Now(), false)
			w.dispatcher.BeginAt(lease.Position)
			if got := (join{w: w}).isBeyond(t.Context(), c.since); got != c.want {
				t.Errorf("%s: beyond its start %v, want %v", c.what, got, c.want)
			}
			w.keeper.fuse.Stop()
			w.held.Lose(feed.ErrLeaseLost)
		}
	})
}

// When all leases are joined that are marked, also by other instances, the unit has as many leases as it should have.
func TestAJoinLeavesEnoughLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			marked []int // first leases of the pairs that are marked
			least  int
			want   bool
		}{
			{[]int{0}, 5, true},
			{[]int{0}, 6, false},
			{[]int{0, 2}, 5, false},
			{[]int{0, 2}, 4, true},
			{[]int{0, 2, 4}, 4, false},
			{[]int{0, 2, 4}, 3, true},
		} {
			r := instancetest.Idle(t.Context(), &shelf{}, instance.Options{})
			parts := feed.FullRange().Cut(6)
			for i, part := range parts {
				lease := made(part, 5, 1)
				for _, first := range c.marked {
					if i == first || i == first+1 {
						both := feed.Range{Min: parts[first].Min, Max: parts[first+1].Max}
						records.MarkJoining(&lease, both, time.Now())
					}
				}
				r.View.Put(lease)
			}
			j := join{&worker{in: r}, &instance.Seat{Meeting: &instance.Meeting{Least: c.least}}}
			if got := j.leavesEnough(); got != c.want {
				t.Errorf("6 leases, with pairs at %v marked: at least %d are left: %v, want %v", c.marked, c.least, got,
					c.want)
			}
		}
	})
}
