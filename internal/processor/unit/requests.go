package unit

import (
	"context"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// serveRequests passes the requests to the workers of their ranges, and withdraws requests whose records are gone.
// obeyPauses obeys the pauses.
func (u *Unit) serveRequests(ctx context.Context) {
	held, _ := u.in.Claims.All()
	asked := map[string]bool{}
	for _, q := range u.in.View.Kind(feed.KindRequest) {
		if q.State != feed.StateLive { // served, and not deleted yet by the caller
			continue
		}
		// the caller has died, and the store does not remove the record
		if q.TTL > 0 && u.in.View.Now().After(q.Updated.Add(q.TTL)) {
			continue
		}
		if notes.IsControl(q.Properties) {
			u.serveControl(ctx, held, q)
			continue
		}
		asked[q.Token] = true
		place := notes.ReadRequest(q.Properties).EPK
		for _, h := range held {
			if h.Lease.Range.Holds(place) {
				h.Requests.Accept(q)
			}
		}
	}
	for _, h := range held {
		h.Requests.Withdraw(asked)
	}
}
