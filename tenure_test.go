package changefeed

import (
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/balance"
)

// A lease is written on the beat of its instance, at its place in the burst; later after a
// checkpoint if that is safe, and at the latest a Renew after the last write if not.
func TestWhenALeaseIsRenewed(t *testing.T) {
	phase := time.Unix(0, 0)
	second := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, c := range []struct {
		name              string
		renew, expiration float64
		written           float64
		place             float64
		held              int
		want              float64
	}{
		{"on the beat", 17, 60, 0, 0, 1, 17},
		{"at its place in the burst", 17, 60, 0.125, 0.5, 1, 17.125},
		{"at its place in a long burst", 17, 60, 1, 0.5, 80, 18},
		{"a burst of half a Renew at most", 10, 60, 2.5, 0.5, 1000, 12.5},
		{"the next beat after a checkpoint that was long before", 17, 60, 5, 0, 1, 17},
		{"the beat after it, after one just before", 17, 60, 12, 0, 1, 34},
		{"no later than safe", 17, 36, 12, 0, 1, 29},
	} {
		o := Options{Renew: second(c.renew), Expiration: second(c.expiration)}
		got := renewal(phase.Add(second(c.written)), phase, c.place, c.held, o).Sub(phase)
		if got != second(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, second(c.want))
		}
	}
}

// Who says first that the work ends says why; a lease that is lost is lost, whatever was
// said; and there is no ending that nobody gave.
func TestTheFirstEndingCounts(t *testing.T) {
	r := idle(Options{})
	for _, lost := range []bool{false, true} {
		tn := r.newTenure(Record{Kind: KindLease, Token: "-FF"})
		if e := tn.ending(); !e.none() || tn.untilStopped.Err() != nil {
			t.Fatalf("ends by itself: %+v", e)
		}
		given := ending{why: ReasonGiven, to: balance.Owner{Instance: "b", Epoch: "e"}}
		if !tn.stop(given) || tn.stop(ending{why: ReasonStopped}) || tn.ending() != given {
			t.Errorf("ends with %+v, want %+v", tn.ending(), given)
		}
		if tn.untilStopped.Err() == nil || tn.untilLost.Err() != nil || tn.untilDrained.Err() != nil {
			t.Error("a stop ends more than what is begun, or less")
		}
		if lost {
			if tn.lose(ErrLeaseLost); tn.ending() != (ending{why: ReasonLost}) || tn.untilDrained.Err() == nil {
				t.Errorf("a lost lease ends with %+v", tn.ending())
			}
		}
		tn.lose(nil)
	}
	tn := r.newTenure(Record{})
	if tn.lose(ErrLeaseLost); tn.stop(ending{why: ReasonStopped}) || tn.ending().why != ReasonLost {
		t.Errorf("a lost lease was stopped: %+v", tn.ending())
	}
}
