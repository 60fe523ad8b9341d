package tenure

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
	"github.com/millrace/changefeed/internal/processor/records"
)

// shelf is a lease store that notes what is deleted and what is freed.
type shelf struct {
	feed.LeaseStore
	deleted, freed int
}

func (s *shelf) Update(_ context.Context, l feed.Record) (feed.Record, error) {
	if l.Free() {
		s.freed++
	}
	return l, nil
}

func (s *shelf) Delete(context.Context, feed.Record) error {
	s.deleted++
	return nil
}

// A lease goes if others cover it when it is to go; that they did so before is not enough.
func TestALeaseThatIsNoLongerCoveredIsFreed(t *testing.T) {
	for _, covered := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &shelf{}
			r := instancetest.Idle(t.Context(), s, instance.Options{})
			late := made(feed.FullRange(), 1, 1)
			late.Owner, late.Epoch = r.Me.Instance, r.Me.Epoch
			if covered {
				for _, half := range feed.FullRange().Cut(2) {
					r.View.Put(made(half, 5, 1))
				}
			}
			w := newWorker(r, late, time.Now(), false)
			var keeping sync.WaitGroup
			keeping.Go(w.keeper.keepRenewing)
			w.removeCovered()
			w.held.Lose(feed.ErrLeaseLost)
			keeping.Wait()
			if (s.deleted == 1) != covered || (s.freed == 1) == covered {
				t.Errorf("covered %v: %d leases deleted, %d freed", covered, s.deleted, s.freed)
			}
		})
	}
}

// made is a lease as this processor makes it.
func made(r feed.Range, at, generation int) feed.Record {
	l := feed.Record{
		Kind: feed.KindLease, Version: 1, ID: r.String(), Token: r.String(), Range: r,
		Position: feed.At(strconv.Quote(strconv.Itoa(at))),
	}
	records.SetGeneration(&l, generation)
	return l
}
