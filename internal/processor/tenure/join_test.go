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

// Two workers agree if a lease of both skips the same changes as each of them: they skip the same by themselves, or
// they have come beyond their starts.
func TestWorkersAgreeIfBothSkipTheSame(t *testing.T) {
	old, early, late := time.Now().Add(-3*time.Hour), time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	for _, c := range []struct {
		left, right feed.Start
		next        time.Time // of the change after both
		want        bool
		past        [2]bool
	}{
		{feed.FromNow(), feed.FromBeginning(), old, true, [2]bool{}},
		{feed.FromTime(late), feed.FromTime(late), old, true, [2]bool{}},
		{feed.FromTime(early), feed.FromTime(early), late, true, [2]bool{}},
		{feed.FromTime(late), feed.FromNow(), late, true, [2]bool{true, false}},
		{feed.FromBeginning(), feed.FromTime(late), late, true, [2]bool{false, true}},
		{feed.FromTime(early), feed.FromTime(late), late, true, [2]bool{true, true}},
		{feed.FromTime(early), feed.FromTime(late), early, false, [2]bool{true, false}},
		{feed.FromNow(), feed.FromTime(late), early, false, [2]bool{}},
	} {
		synctest.Test(t, func(t *testing.T) {
			in := instancetest.Idle(t.Context(), &shelf{}, instance.Options{})
			in.Source = &dated{head: 9, changes: map[int64]time.Time{6: c.next}}
			in.View.Heard(nil, time.Now())
			var workers [2]*worker
			for i, start := range []feed.Start{c.left, c.right} {
				lease := made(feed.FullRange().Cut(2)[i], 5, 1)
				lease.Position.Start = start
				workers[i] = newWorker(in, lease, time.Now(), false)
				workers[i].dispatcher.BeginAt(lease.Position)
				defer workers[i].keeper.fuse.Stop()
				defer workers[i].held.Lose(feed.ErrLeaseLost)
			}
			instance.Meet(workers[0].held, workers[1].held, 1)
			seats := [2]*instance.Seat{workers[0].held.Seat(), workers[1].held.Seat()}
			answers := make(chan bool)
			for i, w := range workers {
				go func() { answers <- join{w, seats[i]}.agree(t.Context()) }()
			}
			first, second := <-answers, <-answers
			past := [2]bool{seats[0].Past, seats[1].Past}
			if first != c.want || second != c.want || past != c.past {
				t.Errorf("from %v and %v, the next change of %v: they agree %v and %v, past %v; want %v, %v", c.left,
					c.right, c.next, first, second, past, c.want, c.past)
			}
		})
	}
}

// library is a lease store with some records, and a source with a single partition.
type library struct {
	shelf
	records []feed.Record
}

func (l *library) List(context.Context) ([]feed.Record, time.Time, error) {
	return l.records, time.Now(), nil
}

type single struct{ instancetest.Counted }

func (single) Partitions(context.Context) ([]feed.Partition, error) {
	return []feed.Partition{{ID: "0", Range: feed.FullRange()}}, nil
}

// A lease of both is made only if the unit has as many leases as it should have when all leases are joined that are
// marked, also by other instances.
func TestAJoinLeavesEnoughLeases(t *testing.T) {
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
		synctest.Test(t, func(t *testing.T) {
			store := &library{}
			in := instancetest.Idle(t.Context(), store, instance.Options{})
			in.Source = single{}
			in.View = records.NewView(in.Store, in.Source)
			parts := feed.FullRange().Cut(6)
			for i, part := range parts {
				lease := made(part, 5, 1)
				lease.ID, lease.Owner, lease.Epoch = part.String(), in.Me.Instance, in.Me.Epoch
				for _, first := range c.marked {
					if i == first || i == first+1 {
						both := feed.Range{Min: parts[first].Min, Max: parts[first+1].Max}
						records.MarkJoining(&lease, both, time.Now())
					}
				}
				store.records = append(store.records, lease)
			}
			w := newWorker(in, store.records[0], time.Now(), false)
			defer w.keeper.fuse.Stop()
			defer w.held.Lose(feed.ErrLeaseLost)
			j := join{w, &instance.Seat{Meeting: &instance.Meeting{Least: c.least}}}
			if _, _, got := j.planJoint(store.records[0], store.records[1]); got != c.want {
				t.Errorf("6 leases, with pairs at %v marked, at least %d: made %v, want %v", c.marked, c.least, got, c.want)
			}
		})
	}
}
