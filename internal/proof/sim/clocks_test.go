package sim

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// A process whose clock is off sees each of the store's times off by as much. Otherwise the process would wait longer,
// or less long, than a process with a wrong clock does.
func TestAllTimesOfTheStoreAreShiftedTogether(t *testing.T) {
	at, by := time.Date(2000, 1, 1, 0, 10, 0, 0, time.UTC), 4*time.Minute
	lease := feed.Record{Kind: feed.KindLease, Updated: at, Fence: at}
	records.MarkJoining(&lease, feed.FullRange(), at)
	records.SetDue(&lease, at)
	lease.Position.Start = feed.FromTime(at)

	seen := shift(lease, by)

	joining, _ := records.JoiningOf(seen)
	due, _ := notes.ReadDue(seen.Properties[notes.DueProperty])
	for what, got := range map[string]time.Time{
		"written": seen.Updated, "fence": seen.Fence, "start": seen.Position.Start.Time(),
		"joining until": joining.Until, "due": due.By,
	} {
		if want := at.Add(by); !got.Equal(want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	if back := shift(seen, -by); !back.Fence.Equal(at) || back.Properties[notes.JoiningProperty] !=
		lease.Properties[notes.JoiningProperty] {
		t.Errorf("shifted back, the lease is %+v, want %+v", back, lease)
	}
}
