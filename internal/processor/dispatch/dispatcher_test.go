package dispatch

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
)

// The keys that are set aside are those of a position and a partition, but what the position has passed is nobody
// else's.
func TestKeysSetAsideOutliveAForeignMove(t *testing.T) {
	partitions := []notes.Partition{{ID: "1", Max: "FF"}}
	text := notes.Aside{
		At: `"7"`, Partition: notes.Name("", "FF", partitions), Recalls: []notes.Recall{{Key: "c", Letter: "1"}},
		Keys: []notes.AsideKey{{Key: "a", From: `"2"`, LSN: 3, Passed: true}, {Key: "b", From: `"7"`, LSN: 8}},
	}.String()
	for _, c := range []struct {
		name, position, partition string
		keys                      string
		lsn                       int64
		recalls                   int
	}{
		{"as it was", `"7"`, "1", "ab", 3, 1},
		{"moved", `"9"`, "1", "a", 3, 0},
		{"in another partition", `"7"`, "2", "ab", 0, 1},
	} {
		a, err := notes.ReadAside(text, notes.Place{
			Position: c.position, Max: "FF",
			Partitions: []notes.Partition{{ID: c.partition, Max: "FF"}},
		})
		var keys strings.Builder
		for _, k := range a.Keys {
			keys.WriteString(k.Key)
		}
		if keys.String() != c.keys || a.Keys[0].LSN != c.lsn || len(a.Recalls) != c.recalls ||
			(err != nil) != (c.position != `"7"`) {
			t.Errorf("%s: %+v, %v", c.name, a, err)
		}
	}
}

// pageOf gives a dispatcher a page of changes of a key.
func pageOf(o instance.Options, changes int) (*Dispatcher, *readPage) {
	o.Concurrency, o.MaxSetAside = 1, 100
	in := instancetest.Idle(context.Background(), nil, o)
	d := New(in, in.Hold(feed.Record{Kind: feed.KindLease, Token: "-FF"}), nil)
	of := &readPage{Page: feed.Page{Next: feed.Position{Token: `"9"`, Start: feed.FromBeginning()}, Charge: 3}}
	for i := range changes {
		of.Changes = append(of.Changes, feed.Change{LSN: int64(i + 1), PartitionKey: `["a"]`, Body: []byte("body")})
	}
	d.engine.Tell(delivery.PageRead{Of: of, Next: of.Next, Changes: changes, Meta: meta(of.Changes)}, time.Now())
	return d, of
}

// What is kept of a page when its memory is given up has memory of its own.
func TestWhatIsKeptOfAPageIsACopy(t *testing.T) {
	d, of := pageOf(instance.Options{}, 2)
	before := of.Changes
	d.shedPage(d.engine.FirstOpen().Page)
	if &of.Changes[0] == &before[0] || &of.Changes[0].Body[0] == &before[0].Body[0] ||
		string(of.Changes[1].Body) != "body" {
		t.Errorf("kept %+v", of.Changes)
	}
}

// A page that is handled as a whole is given up several times, which must cost no memory: pages go by all the time.
func TestAHandledPageIsGivenUpWithoutACopy(t *testing.T) {
	d, of := pageOf(instance.Options{MaxItems: 3}, 3)
	page, before := d.engine.FirstOpen().Page, of.Changes
	do, _ := d.engine.Next(time.Now())
	if do.Kind != delivery.Call || len(do.Batch.Changes) != 3 {
		t.Fatalf("got the effect %+v, want a batch of the page", do)
	}
	d.engine.Tell(delivery.Succeeded{Batch: do.Batch}, time.Now())
	if n := testing.AllocsPerRun(10, func() { d.shedPage(page) }); n > 0 {
		t.Errorf("%v allocations each time", n)
	}
	for i, c := range of.Changes {
		if c.Body != nil || before[i].Body == nil {
			t.Errorf("change %d: the page has %+v, and the batch may still have %+v", i, c, before[i])
		}
	}
	if len(of.Changes) != len(before) {
		t.Errorf("the page has %d changes, want %d", len(of.Changes), len(before))
	}
}

func TestAPositionWithinAPageHasTheStartOfThePage(t *testing.T) {
	_, of := pageOf(instance.Options{}, 2)
	if at, known := positionAfter(instancetest.Counted{}, of.Next, 5); !known ||
		at != (feed.Position{Token: `"5"`, Start: of.Next.Start}) {
		t.Errorf("%+v, %v", at, known)
	}
	if at, known := positionAfter(struct{ feed.Source }{instancetest.Counted{}}, of.Next, 5); known {
		t.Errorf("a source that is no Sequencer has the position %+v within a page", at)
	}
}

func TestAChargeCountsForOneBatch(t *testing.T) {
	d, _ := pageOf(instance.Options{MaxItems: 1}, 2)
	do, _ := d.engine.Next(time.Now())
	made := &handout{d: d, of: do.Batch}
	if first, second := d.newBatch(made).Charge, d.newBatch(made).Charge; first != 3 || second != 0 {
		t.Errorf("charges %v and %v", first, second)
	}
}

func TestABufferIsFullOfBytes(t *testing.T) {
	for most, want := range map[int64]bool{1: true, 1 << 20: false} {
		if d, _ := pageOf(instance.Options{BufferItems: 100, BufferBytes: most}, 2); isFull(d.engine.Counts(),
			&d.in.Options) != want {
			t.Errorf("at most %d bytes: full %v", most, isFull(d.engine.Counts(), &d.in.Options))
		}
	}
}

// largeLetters are letters of a key that is held, 2 MB each.
type largeLetters struct {
	feed.LetterBox
	count int
}

func (b largeLetters) Letters(_ context.Context, key feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		body := make([]byte, 2<<20)
		for i := range b.count {
			c := feed.Change{LSN: int64(i + 1), PartitionKey: key, Body: body}
			if !yield(feed.DeadLetter{ID: fmt.Sprint(c.LSN), Change: c, Disposition: feed.DispositionHeld}, nil) {
				return
			}
		}
	}
}

// A release hands the letters of its key over a few at a time, so that large ones do not fill the memory, and lists
// again.
func TestAReleaseHasFewLargeLettersInMemory(t *testing.T) {
	d, _ := pageOf(instance.Options{}, 0)
	for count, want := range map[int]int{5: 5, 100: bytesAtOnce / (2 << 20)} {
		q := &request{}
		held, failed, err := d.requests.heldLetters(largeLetters{count: count}, &delivery.Request{Key: `["a"]`, Of: q})
		if len(held) != want || failed || err != nil || q.whole != (count == want) {
			t.Errorf("of %d letters %d are in memory, want %d; that is all: %v, %v, %v", count, len(held), want,
				q.whole, failed, err)
		}
	}
}
