package instance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
)

// Who says first that the work ends says why; a lease that is lost is lost, whatever was
// said; and there is no ending that nobody gave.
func TestTheFirstEndingCounts(t *testing.T) {
	r := instancetest.Idle(t.Context(), nil, instance.Options{})
	for _, lost := range []bool{false, true} {
		tn := r.Hold(feed.Record{Kind: feed.KindLease, Token: "-FF"})
		if e := tn.Ending(); !e.None() || tn.UntilStopped.Err() != nil {
			t.Fatalf("ends by itself: %+v", e)
		}
		given := instance.Ending{Why: feed.ReasonGiven, To: balance.Owner{Instance: "b", Epoch: "e"}}
		if !tn.Stop(given) || tn.Stop(instance.Ending{Why: feed.ReasonStopped}) || tn.Ending() != given {
			t.Errorf("ends with %+v, want %+v", tn.Ending(), given)
		}
		if tn.UntilStopped.Err() == nil || tn.UntilLost.Err() != nil || tn.UntilDrained.Err() != nil {
			t.Error("a stop ends more than what is begun, or less")
		}
		if lost {
			if tn.Lose(feed.ErrLeaseLost); tn.Ending() != (instance.Ending{Why: feed.ReasonLost}) ||
				tn.UntilDrained.Err() == nil {
				t.Errorf("a lost lease ends with %+v", tn.Ending())
			}
		}
		tn.Lose(nil)
	}
	tn := r.Hold(feed.Record{})
	if tn.Lose(feed.ErrLeaseLost); tn.Stop(instance.Ending{Why: feed.ReasonStopped}) ||
		tn.Ending().Why != feed.ReasonLost {
		t.Errorf("a lost lease was stopped: %+v", tn.Ending())
	}
}

// What a batch that has had all of its drain time leaves is stored yet: writing goes on for as long again.
func TestWritesGoOnForTwoDrainTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := instancetest.Idle(t.Context(), nil, instance.Options{})
		held := r.Hold(feed.Record{Kind: feed.KindLease, Token: "-FF"})
		defer held.Lose(nil)
		held.Stop(instance.Ending{Why: feed.ReasonStopped})
		begun := time.Now()
		<-held.UntilDrained.Done()
		if took, want := time.Since(begun), 2*r.Options.Drain; took != want || held.UntilLost.Err() != nil {
			t.Errorf("writes end %v after the stop, want %v", took, want)
		}
	})
}
