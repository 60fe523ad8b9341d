package changefeed

import (
	"testing"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/balance"
)

// Who says first that the work ends says why; a lease that is lost is lost, whatever was
// said; and there is no ending that nobody gave.
func TestTheFirstEndingCounts(t *testing.T) {
	r := idle(Options{})
	for _, lost := range []bool{false, true} {
		tn := r.newTenure(feed.Record{Kind: feed.KindLease, Token: "-FF"})
		if e := tn.ending(); !e.none() || tn.untilStopped.Err() != nil {
			t.Fatalf("ends by itself: %+v", e)
		}
		given := ending{why: feed.ReasonGiven, to: balance.Owner{Instance: "b", Epoch: "e"}}
		if !tn.stop(given) || tn.stop(ending{why: feed.ReasonStopped}) || tn.ending() != given {
			t.Errorf("ends with %+v, want %+v", tn.ending(), given)
		}
		if tn.untilStopped.Err() == nil || tn.untilLost.Err() != nil || tn.untilDrained.Err() != nil {
			t.Error("a stop ends more than what is begun, or less")
		}
		if lost {
			if tn.lose(feed.ErrLeaseLost); tn.ending() != (ending{why: feed.ReasonLost}) || tn.untilDrained.Err() == nil {
				t.Errorf("a lost lease ends with %+v", tn.ending())
			}
		}
		tn.lose(nil)
	}
	tn := r.newTenure(feed.Record{})
	if tn.lose(feed.ErrLeaseLost); tn.stop(ending{why: feed.ReasonStopped}) || tn.ending().why != feed.ReasonLost {
		t.Errorf("a lost lease was stopped: %+v", tn.ending())
	}
}
