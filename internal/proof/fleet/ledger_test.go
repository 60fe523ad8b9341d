package fleet

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// batchOf is a batch of one document's versions.
func batchOf(instance string, lsns ...int64) *feed.Batch {
	b := &feed.Batch{Instance: instance, LeaseToken: "-FF"}
	for _, lsn := range lsns {
		b.Changes = append(b.Changes, feed.Change{ID: "a", PartitionKey: feed.Key("London"), LSN: lsn})
	}
	return b
}

func ack(l *Ledger, id string, lsn int64) {
	l.Wrote(feed.Key("London"), []string{id}, []feed.Result{{LSN: lsn, Created: true}})
}

func TestTheLedgerFindsEachKindOfDefect(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(*Ledger)
		want Judgement
	}{
		{"all is well", func(l *Ledger) {
			ack(l, "a", 1)
			l.Handled(batchOf("host-1", 1), time.Now())
		}, Judgement{Inserts: 1, Handled: 1}},
		{"a version that was overwritten before it was read", func(l *Ledger) {
			ack(l, "a", 1)
			ack(l, "a", 2)
			l.Handled(batchOf("host-1", 2), time.Now())
		}, Judgement{Inserts: 2, Handled: 1}},
		{"a lost insert", func(l *Ledger) {
			ack(l, "a", 1)
			ack(l, "b", 2)
			l.Handled(batchOf("host-1", 1), time.Now())
		}, Judgement{Inserts: 2, Handled: 1, Lost: 1}},
		{"a lost last version", func(l *Ledger) {
			ack(l, "a", 1)
			l.Handled(batchOf("host-1", 1), time.Now())
			ack(l, "a", 2)
		}, Judgement{Inserts: 2, Handled: 1, Lost: 1}},
		{"an older version after a newer one", func(l *Ledger) {
			ack(l, "a", 1)
			ack(l, "a", 2)
			l.Handled(batchOf("host-1", 2, 1), time.Now())
		}, Judgement{Inserts: 2, Handled: 2, OutOfOrder: 1}},
		{"an older document of the key after a newer one", func(l *Ledger) {
			ack(l, "b", 2)
			ack(l, "a", 1)
			b := batchOf("host-1", 2, 1)
			b.Changes[0].ID = "b"
			l.Handled(b, time.Now())
		}, Judgement{Inserts: 2, Handled: 2, OutOfOrder: 1}},
		{"a planned move that repeats", func(l *Ledger) {
			ack(l, "a", 1)
			l.Handled(batchOf("host-1", 1), time.Now())
			l.Handled(batchOf("host-2", 1), time.Now())
		}, Judgement{Inserts: 1, Handled: 1, Duplicates: 1, Planned: 1}},
		{"a takeover that repeats", func(l *Ledger) {
			ack(l, "a", 1)
			l.Handled(batchOf("host-1", 1), time.Now())
			l.Kill("host-1", []string{"-FF"})
			l.Handled(batchOf("host-2", 1), time.Now())
		}, Judgement{Inserts: 1, Handled: 1, Duplicates: 1}},
		{"what a dead instance does is not done", func(l *Ledger) {
			ack(l, "a", 1)
			l.Kill("host-1", nil)
			l.Handled(batchOf("host-1", 1), time.Now())
		}, Judgement{Inserts: 1, Lost: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewLedger()
			c.play(l)
			got := l.Judge()
			got.P50, got.P99 = 0, 0
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestTheLatencyLeavesOutWhatWaitedForATakeover(t *testing.T) {
	l := NewLedger()
	ack(l, "a", 1)
	l.Kill("host-1", []string{"-FF"})
	ack(l, "a", 2)
	l.Adopt()
	late := time.Now().Add(time.Hour)
	l.Handled(batchOf("host-2", 1, 2), late)
	ack(l, "a", 3)
	l.Handled(batchOf("host-2", 3), time.Now().Add(time.Second))
	if n, p99 := len(l.waits), l.Judge().P99; n != 1 || p99 < 500 || p99 > 1500 {
		t.Errorf("got %d latencies, p99 %v ms, want one of about 1 s", n, p99)
	}
}
