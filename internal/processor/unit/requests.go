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
		for _, h := range held {
			if isAbout(q, h.Lease.Range) {
				h.Requests.Accept(q)
			}
		}
	}
	for _, h := range held {
		h.Requests.Withdraw(asked)
	}
}

// isAbout reports whether the owner of a range answers a request about a key. A newer version may ask for something
// about a range too.
func isAbout(q feed.Record, r feed.Range) bool {
	if c, err := notes.ReadControl(q.Properties); err == nil {
		return r.Overlaps(feed.Range{Min: c.Min, Max: c.Max})
	}
	return r.Holds(notes.ReadRequest(q.Properties).EPK)
}
