package instance

import (
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/records"
)

// StartOfPage returns the position from which a page was read, as a token. If the source is a [feed.Sequencer], the
// token before the first change is known; otherwise the position stays unchanged.
func StartOfPage(source feed.Source, p feed.Page, from feed.Position) feed.Position {
	if len(p.Changes) == 0 {
		return p.Next
	}
	first, last := p.Changes[0].LSN, p.Changes[len(p.Changes)-1].LSN
	if end, ok := records.TokenLSN(source, p.Next.Token); !ok || end != last {
		return from
	}
	before, _ := records.PositionAfter(source, first-1, from)
	return before
}

// The pauses of a range without changes.
const (
	FirstPoll = 5 * time.Millisecond   // first pause after activity
	MaxGather = 128 * time.Millisecond // longest pause before a range waits again, if other ranges wake it all the time
)
