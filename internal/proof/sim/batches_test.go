package sim

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// rewriting is a lease store that writes something else than it was given.
type rewriting struct {
	feed.LeaseStore
	edit func(*feed.Record)
}

func (s rewriting) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if l.Kind == feed.KindLease && !l.Free() {
		s.edit(&l)
	}
	return s.LeaseStore.Update(ctx, l)
}

func (s rewriting) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	return s.LeaseStore.(feed.Follower).Follow(ctx, cursor)
}

func TestTheCheckersFindALeaseThatSaysSomethingElse(t *testing.T) {
	if detector.On {
		t.Skip("it plays many worlds to test their checkers, which has nothing to do with data races")
	}
	for _, c := range []struct {
		name, breach string
		edit         func(*feed.Record)
	}{
		{"the keys that are set aside are missing", "which passes", func(l *feed.Record) {
			l.Properties = notes.Set(l.Properties, notes.AsideProperty, "")
		}},
		{"no attempts are counted", "attempts of", func(l *feed.Record) { l.Attempts = 0 }},
		{"too many attempts are counted", "attempts of", func(l *feed.Record) { l.Attempts++ }},
		{"the position is a transaction too far", "has not come", func(l *feed.Record) {
			if lsn := lsnOf(l.Position.Token); lsn > 0 {
				l.Position = feed.At(service.Token(lsn + 1))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const most = 60
			for seed := range uint64(most) {
				broken, _ := play(t, seed, seed%2 == 0, func(s feed.LeaseStore) feed.LeaseStore {
					return rewriting{s, c.edit}
				})
				if strings.Contains(strings.Join(broken, "\n"), c.breach) {
					t.Logf("seed %d", seed)
					return
				}
			}
			t.Errorf("%d seeds broke no promise that says %q", most, c.breach)
		})
	}
}

// A batch of a lease whose owner has read a page with the LSNs 5, 5, 6 and 8, after an empty one that ended at 4.
func TestABatchIsRightOrWrong(t *testing.T) {
	for _, c := range []struct {
		name   string
		batch  []int // changes of the page, by their places
		fails  int   // calls of that batch before
		number int
		breach string
	}{
		{name: "the whole page", batch: []int{0, 1, 2, 3}, number: 1},
		{name: "the page again", batch: []int{0, 1, 2, 3}, fails: 1, number: 2},
		{name: "an attempt too many", batch: []int{0, 1, 2, 3}, number: 2, breach: "attempt:"},
		{name: "an attempt too few", batch: []int{0, 1, 2, 3}, fails: 1, number: 1, breach: "attempt:"},
		{name: "a part without a reason", batch: []int{0, 1}, number: 1, breach: "for no reason"},
		{name: "a part of a transaction", batch: []int{0}, number: 1, breach: "within the transaction"},
		{name: "not from the beginning", batch: []int{2, 3}, number: 1, breach: "no such page"},
		{name: "a hole", batch: []int{0, 1, 3}, number: 1, breach: "no such page"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newLedger(feed.LatestVersion, epk.HashV2)
			by := &instance{name: "a", world: &world{ledger: g}}
			g.noteAcquired(by, feed.Lease{Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"2"`)})
			g.notePage(by, feed.FullRange(), `"2"`, feed.Page{Next: feed.At(`"4"`)})
			page := feed.Page{Next: feed.At(`"9"`)}
			for i, lsn := range []int64{5, 5, 6, 8} {
				page.Changes = append(page.Changes, feed.Change{
					LSN: lsn, ID: string(rune('a' + i)),
					PartitionKey: `["x"]`,
				})
			}
			g.notePage(by, feed.FullRange(), `"4"`, page)
			batch := &feed.Batch{LeaseToken: "-FF", Range: feed.FullRange()}
			for _, i := range c.batch {
				batch.Changes = append(batch.Changes, page.Changes[i])
			}
			for n := range c.fails {
				batch.Attempt = n + 1
				g.endCall(g.handOver(t.Context(), by, batch), false, nil)
			}
			batch.Attempt = c.number
			g.handOver(t.Context(), by, batch)
			if broken := strings.Join(g.broken, "\n"); c.breach == "" && broken != "" ||
				!strings.Contains(broken, c.breach) {
				t.Errorf("broken is %q, want %q", broken, c.breach)
			}
		})
	}
}

// The owner of a lease has read a page with the LSNs 5, 6 and 8. Its first change is done, and the owner has read on
// from there: LSNs 6, 8 and 10. Two changes make a full batch.
func TestABatchMayComeFromALaterPage(t *testing.T) {
	for _, c := range []struct {
		name    string
		from    int64 // where the later page begins
		batches [][]int64
		lost    bool // the answer with the first page, so it was read again, without LSN 6, which was replaced
		breach  string
	}{
		{
			name: "the rest of the page, and a change that only the later page has", from: 5,
			batches: [][]int64{{6, 8}, {10}},
		},
		{name: "a change is passed over", from: 5, batches: [][]int64{{6}, {10}}, breach: "no reason"},
		{name: "a change that nobody has read", from: 5, batches: [][]int64{{6, 8}, {11}}, breach: "has not read"},
		{
			name: "a change is left before the later page", from: 7, batches: [][]int64{{8, 10}},
			breach: "where LSN 6 is next",
		},
		{name: "a change of a page that was lost", from: 7, batches: [][]int64{{8, 10}}, lost: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newLedger(feed.LatestVersion, epk.HashV2)
			by := &instance{name: "a", world: &world{ledger: g}}
			by.opts.MaxItems = 2
			g.noteAcquired(by, feed.Lease{Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"2"`)})
			var forget func()
			read := func(from int64, lsns ...int64) {
				page := feed.Page{Next: feed.At(service.Token(lsns[len(lsns)-1]))}
				for _, lsn := range lsns {
					page.Changes = append(page.Changes, feed.Change{LSN: lsn, ID: "a", PartitionKey: `["x"]`})
				}
				forget = g.notePage(by, feed.FullRange(), service.Token(from), page)
			}
			handle := func(lsns ...int64) {
				batch := &feed.Batch{LeaseToken: "-FF", Range: feed.FullRange(), Attempt: 1}
				for _, lsn := range lsns {
					batch.Changes = append(batch.Changes, feed.Change{LSN: lsn, ID: "a", PartitionKey: `["x"]`})
				}
				g.endCall(g.handOver(t.Context(), by, batch), true, batch.Changes)
			}
			neighbor := feed.Lease{Token: "next", Range: feed.Range{Min: "FF"}, Position: feed.At(service.Token(5))}
			g.noteAcquired(by, neighbor)
			read(2, 5, 6, 8)
			if c.lost {
				forget()
				read(2, 5)
			}
			handle(5)
			later := []int64{6, 8, 10}
			read(c.from, later[max(0, int(c.from)-6):]...)
			for _, lsns := range c.batches {
				handle(lsns...)
			}
			if broken := strings.Join(g.broken, "\n"); c.breach == "" && broken != "" ||
				!strings.Contains(broken, c.breach) {
				t.Errorf("broken is %q, want %q", broken, c.breach)
			}
		})
	}
}

// The network may hold back the create of a lease until long after another instance has had the range. Such a lease
// counts as deleted, so it passes nothing, wherever its position is.
func TestALeaseThatIsCreatedTooLatePassesNothing(t *testing.T) {
	v := version{`["x"]`, "a", 7}
	for after, passes := range map[time.Duration]bool{time.Second: true, time.Minute: false} {
		g := newLedger(feed.LatestVersion, epk.HashV2)
		g.open[v] = entry{epk: "10"}
		sent := time.Unix(1000, 0)
		due := notes.Due{By: sent.Add(30 * time.Second), Sent: sent}
		g.checkCreated(&instance{name: "a", world: &world{ledger: g}}, feed.Record{
			Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"9"`), Timestamp: sent, Updated: sent.Add(after),
			Kind: feed.KindLease, Version: 1, State: feed.StateLive,
			Properties: map[string]string{notes.GenerationProperty: "0", notes.DueProperty: due.String()},
		})
		if got := len(g.broken) > 0; got != passes || got == g.isOpen(v) {
			t.Errorf("created %v after it was sent: passes %v, want %v", after, got, passes)
		}
	}
}

// The number that a lease has is of the first change after its position, which may be another one by now. The change
// that has it, or has as many calls by the notes, keeps it when it comes again alone, though another one of its batch
// had as many.
func TestTheCallsThatALeaseCountsStayWithTheirChange(t *testing.T) {
	for _, c := range []struct {
		lease, noted, again int
		breach              string
	}{{8, 0, 10, ""}, {8, 0, 11, "attempt:"}, {0, 8, 10, ""}, {0, 8, 11, "attempt:"}, {0, 0, 10, "attempt:"}} {
		g := newLedger(feed.LatestVersion, epk.HashV2)
		g.strict = false
		by := &instance{name: "a", world: &world{ledger: g}}
		g.noteAcquired(by, feed.Lease{
			Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"2"`),
			Attempts: c.lease,
		})
		page := feed.Page{Next: feed.At(`"9"`), Changes: []feed.Change{
			{LSN: 5, ID: "a", PartitionKey: `["x"]`},
			{LSN: 6, ID: "b", PartitionKey: `["y"]`},
		}}
		g.notePage(by, feed.FullRange(), `"2"`, page)
		g.noted[versionOf(page.Changes[0])], g.begun[versionOf(page.Changes[1])] = c.noted, 8
		both := &feed.Batch{LeaseToken: "-FF", Range: feed.FullRange(), Changes: page.Changes, Attempt: 9}
		g.endCall(g.handOver(t.Context(), by, both), false, nil)
		g.handOver(t.Context(), by, &feed.Batch{
			LeaseToken: "-FF", Range: feed.FullRange(), Changes: page.Changes[:1],
			Attempt: c.again,
		})
		if broken := strings.Join(g.broken, "\n"); c.breach == "" && broken != "" ||
			!strings.Contains(broken, c.breach) {
			t.Errorf("%+v: broken is %q", c, broken)
		}
	}
}

// A call that was cut short by the end of the work counts for nothing.
func TestACallThatIsCutShortIsNoAttempt(t *testing.T) {
	g := newLedger(feed.LatestVersion, epk.HashV2)
	by := &instance{name: "a", world: &world{ledger: g}}
	g.noteAcquired(by, feed.Lease{Token: "-FF", Range: feed.FullRange(), Position: feed.At(`"2"`), Attempts: 3})
	page := feed.Page{Next: feed.At(`"9"`), Changes: []feed.Change{{LSN: 5, ID: "a", PartitionKey: `["x"]`}}}
	g.notePage(by, feed.FullRange(), `"2"`, page)
	batch := &feed.Batch{LeaseToken: "-FF", Range: feed.FullRange(), Changes: page.Changes, Attempt: 4}
	for cause, attempt := range map[error]int{feed.ErrStopped: 4, feed.ErrLeaseLost: 4} {
		ctx, cancel := context.WithCancelCause(t.Context())
		batch.Attempt = attempt
		call := g.handOver(ctx, by, batch)
		cancel(cause)
		g.endCall(call, false, nil)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	call := g.handOver(ctx, by, batch)
	cancel(feed.ErrHandlerTimeout)
	g.endCall(call, false, nil)
	if got := g.model.tenures[place{by, "-FF"}].callsAfter(`"2"`); got != 4 || len(g.broken) > 0 {
		t.Errorf("%d calls, broken %v", got, g.broken)
	}
}

// The notes of a lease keep a change of a key that is set aside, from its LSN on, and only if it can be read from
// there.
func TestAKeyThatIsSetAsideIsNotPassed(t *testing.T) {
	v := version{`["x"]`, "a", 7}
	for aside, keeps := range map[string]bool{
		`{"at":"\"9\"","keys":[{"key":"[\"x\"]","from":"\"5\"","lsn":7}]}`: true,
		`{"at":"\"9\"","keys":[{"key":"[\"x\"]","from":"\"5\"","lsn":0}]}`: true,
		`{"at":"\"9\"","keys":[{"key":"[\"x\"]","from":"\"5\"","lsn":8}]}`: false,
		`{"at":"\"9\"","keys":[{"key":"[\"x\"]","from":"\"7\"","lsn":7}]}`: false,
		`{"at":"\"9\"","keys":[{"key":"[\"y\"]","from":"\"5\"","lsn":7}]}`: false,
		``: false,
	} {
		g := newLedger(feed.LatestVersion, epk.HashV2)
		g.open[v] = entry{epk: "10"}
		g.passesNothing(nil, feed.Record{
			Range: feed.FullRange(), Position: feed.At(`"9"`),
			Properties: map[string]string{notes.AsideProperty: aside},
		})
		if got := len(g.broken) == 0; got != keeps || got != g.isOpen(v) {
			t.Errorf("%s: kept %v, want %v", aside, got, keeps)
		}
	}
}
