package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
)

// batchOf is a batch of one document's versions.
func batchOf(instance string, lsns ...int64) *changefeed.Batch {
	b := &changefeed.Batch{Instance: instance, LeaseToken: "-FF"}
	for _, lsn := range lsns {
		b.Changes = append(b.Changes, changefeed.Change{ID: "a", PartitionKey: changefeed.Key("London"), LSN: lsn})
	}
	return b
}

func ack(l *ledger, id string, lsn int64) {
	l.acked(changefeed.Key("London"), []string{id}, []changefeed.Result{{LSN: lsn, Created: true}})
}

func TestTheLedgerFindsEachKindOfDefect(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(*ledger)
		want findings
	}{
		{"all is well", func(l *ledger) {
			ack(l, "a", 1)
			l.handledBatch(batchOf("host-1", 1), time.Now())
		}, findings{Written: 1, Handled: 1}},
		{"a version that was overwritten before it was read", func(l *ledger) {
			ack(l, "a", 1)
			ack(l, "a", 2)
			l.handledBatch(batchOf("host-1", 2), time.Now())
		}, findings{Written: 2, Handled: 1}},
		{"a lost insert", func(l *ledger) {
			ack(l, "a", 1)
			ack(l, "b", 2)
			l.handledBatch(batchOf("host-1", 1), time.Now())
		}, findings{Written: 2, Handled: 1, Lost: 1}},
		{"a lost last version", func(l *ledger) {
			ack(l, "a", 1)
			l.handledBatch(batchOf("host-1", 1), time.Now())
			ack(l, "a", 2)
		}, findings{Written: 2, Handled: 1, Lost: 1}},
		{"an older version after a newer one", func(l *ledger) {
			ack(l, "a", 1)
			ack(l, "a", 2)
			l.handledBatch(batchOf("host-1", 2, 1), time.Now())
		}, findings{Written: 2, Handled: 2, OutOfOrder: 1}},
		{"an older document of the key after a newer one", func(l *ledger) {
			ack(l, "b", 2)
			ack(l, "a", 1)
			b := batchOf("host-1", 2, 1)
			b.Changes[0].ID = "b"
			l.handledBatch(b, time.Now())
		}, findings{Written: 2, Handled: 2, OutOfOrder: 1}},
		{"a planned move that repeats", func(l *ledger) {
			ack(l, "a", 1)
			l.handledBatch(batchOf("host-1", 1), time.Now())
			l.handledBatch(batchOf("host-2", 1), time.Now())
		}, findings{Written: 1, Handled: 1, Duplicates: 1, DuplicatesPlannedMoves: 1}},
		{"a takeover that repeats", func(l *ledger) {
			ack(l, "a", 1)
			l.handledBatch(batchOf("host-1", 1), time.Now())
			l.kill("host-1", []string{"-FF"})
			l.handledBatch(batchOf("host-2", 1), time.Now())
		}, findings{Written: 1, Handled: 1, Duplicates: 1}},
		{"what a dead instance does is not done", func(l *ledger) {
			ack(l, "a", 1)
			l.kill("host-1", nil)
			l.handledBatch(batchOf("host-1", 1), time.Now())
		}, findings{Written: 1, Lost: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			c.play(l)
			got := l.judge()
			got.LatencyMS = latency{}
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestTheLatencyLeavesOutWhatWaitedForATakeover(t *testing.T) {
	l := newLedger()
	ack(l, "a", 1)
	l.kill("host-1", []string{"-FF"})
	ack(l, "a", 2)
	l.adopt()
	late := time.Now().Add(time.Hour)
	l.handledBatch(batchOf("host-2", 1, 2), late)
	ack(l, "a", 3)
	l.handledBatch(batchOf("host-2", 3), time.Now().Add(time.Second))
	if n, p99 := len(l.waits), l.judge().LatencyMS.P99; n != 1 || p99 < 500 || p99 > 1500 {
		t.Errorf("got %d latencies, p99 %v ms, want one of about 1 s", n, p99)
	}
}

func TestTheScreenDrawsItsTableInPlace(t *testing.T) {
	var out bytes.Buffer
	s := &screen{w: &out, begun: time.Now(), Terminal: wide(10)}
	s.show([]line{{{"abcdefghijkl", bold}}, {{"░░░", plain}, {"▕▏▕▏▕▏▕▏", plain}}})
	s.say("hello")
	s.show(nil)
	want := "\x1b[1mabcdefghi\x1b[0m\n░░░▕▏▕▏▕▏\n" +
		"\x1b[2A\x1b[J" + "\x1b[2m   0.0s  \x1b[0mhello\n" + "\x1b[1mabcdefghi\x1b[0m\n░░░▕▏▕▏▕▏\n" +
		"\x1b[2A\x1b[J"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTheScreenWritesPlainLinesElsewhere(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.show([]line{{{"a table", bold}}})
	s.note("hello")
	if got, want := out.String(), "   0.0s  hello\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheBoardShowsEachInstance(t *testing.T) {
	d := &demo{ledger: newLedger(), screen: &screen{}, fleet: &fleet{}}
	whole := newWire(t.Context(), nil, nil)
	cut := newWire(t.Context(), nil, nil)
	cut.cut()
	d.fleet.all = []*instance{{name: "host-1", wire: whole}, {name: "host-2", wire: cut}}
	b := newBoard(d)
	lags := []changefeed.Lag{
		{Lease: changefeed.Lease{Owner: "host-1", Range: changefeed.Range{Max: "20"}}, Pending: 7},
		{Lease: changefeed.Lease{Owner: "host-2", Range: changefeed.Range{Min: "20", Max: "FF"}}, Pending: 3},
	}
	var out strings.Builder
	for _, l := range b.table(b.rows(lags), lags) {
		l.render(&out, false, 0)
	}
	for _, want := range []string{"lag 10", "host-1     working       1       7", "host-2     killed        1       3", "▕" + strings.Repeat("1", 31) + "▕" + strings.Repeat("?", 31) + "▏"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestTheDemoEndsWell(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the shortest demo")
	}
	out := command(t, "demo", "--for", shortestDemo.String(), "-o", "json", "-d", t.TempDir()+"/store")
	var got findings
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("output %q: %v", out, err)
	}
	if got.Written == 0 || got.Handled == 0 || got.Lost+got.OutOfOrder+got.DuplicatesPlannedMoves != 0 ||
		got.TakeoverMS == nil || got.RebalanceRounds == nil {
		t.Errorf("got %s", out)
	}
}
