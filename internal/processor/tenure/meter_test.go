package tenure

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// A load is that of the last whole minute, with what is behind the feed. Before, the lease keeps the load that it has.
func TestALoadIsThatOfTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, lease := newMeter(), feed.Record{}
		records.SetProperty(&lease, notes.LoadProperty, notes.PlainNumber(7))
		is := func(want int64) {
			t.Helper()
			m.writeTo(&lease)
			if got := notes.Number(lease.Properties, notes.LoadProperty); got != want {
				t.Errorf("load %d, want %d", got, want)
			}
		}
		page := feed.Page{Changes: []feed.Change{{LSN: 3}, {LSN: 10}}, Head: 50}
		m.see(page, 2)
		time.Sleep(59 * time.Second)
		is(7)
		m.see(page, 1)
		time.Sleep(time.Second)
		is(3 + 40)
		time.Sleep(30 * time.Second)
		is(3 + 40)
		m.see(feed.Page{}, 0)
		m.see(page, 20)
		m.see(feed.Page{}, 0)
		time.Sleep(90 * time.Second)
		is(10)
		time.Sleep(time.Minute)
		is(0)
	})
}

// The children of a lease have together the load of their parent.
func TestChildrenShareTheLoadOfTheirParent(t *testing.T) {
	parent := feed.Record{Range: feed.FullRange()}
	records.SetProperty(&parent, notes.LoadProperty, notes.PlainNumber(100))
	for _, part := range parent.Range.Cut(4) {
		child := feed.Record{Range: part, Properties: parent.Properties}
		shareLoad(&child, parent)
		if got := notes.Number(child.Properties, notes.LoadProperty); got != 25 {
			t.Errorf("part %s has load %d, want 25", part, got)
		}
	}
}
