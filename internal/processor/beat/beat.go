// Package beat says when the leases of an instance are renewed.
package beat

import "time"

// The smallest container there is serves 400 request units a second: about 40 renewals.
const (
	smallBurst  = 40 // so many renewals may come at once,
	quickBurst  = 250 * time.Millisecond
	renewalPace = 25 * time.Millisecond // more keep this distance
)

// Beat is that of an instance: its idle leases are renewed together, so that those who follow
// the lease container wake once, but one after the other, so that many do not overrun a small
// container.
type Beat struct {
	Phase time.Time     // a beat comes at this time, and at whole intervals from it
	Every time.Duration // the interval
	Trust time.Duration // how long after a write its lease is given up
}

// Next is when a lease must be written next that was last written at a time. Its place in the
// burst is from 0 to 1; the instance holds so many leases. A checkpoint is a renewal, so after
// one the next beat is passed over if that leaves time for a store that is away.
func (b Beat) Next(written time.Time, place float64, held int) time.Time {
	burst := quickBurst
	if held > smallBurst {
		burst = renewalPace * time.Duration(held)
	}
	burst = min(burst, b.Every/2)
	due := written.Add(b.Every)
	next := due.Add(-(due.Sub(b.Phase.Add(time.Duration(place*float64(burst)))) % b.Every))
	later := next.Add(b.Every)
	switch soon := next.Sub(written) < b.Every/2; {
	case !soon:
		return next
	case later.Sub(written) < b.Trust/2:
		return later
	}
	return due
}
