package instance

import (
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// StartOfPage is the position that a page was read from, as a token. Where tokens are LSNs in
// quotes, as the service's are, the token before the first change is known; otherwise the
// position stays as it was.
func StartOfPage(p feed.Page, from feed.Position) feed.Position {
	if len(p.Changes) == 0 {
		return p.Next
	}
	first, last := p.Changes[0].LSN, p.Changes[len(p.Changes)-1].LSN
	if p.Next.Token != service.Token(last) {
		return from
	}
	return feed.Position{Token: service.Token(first - 1), Start: from.Start}
}

// The pauses of a range that waits for changes.
const (
	FirstPoll = 5 * time.Millisecond   // first pause after activity
	MaxGather = 128 * time.Millisecond // longest pause before a range waits again that is woken for others all the time
)
