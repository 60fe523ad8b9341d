package instance_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// The worker has waited for a page since before a call. The status says after the call that it waits since the end of
// the call: otherwise a lease that works seems to be idle for long.
func TestTheWorkersActivityCountsFromTheEndOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a instance.Activities
		a.WorkerDoes(feed.ActivityStoring)
		time.Sleep(time.Minute)
		a.BeginCall()
		time.Sleep(time.Minute)
		ended := time.Now()
		a.EndCall()
		time.Sleep(time.Second)
		if does, since := a.Now(); does != feed.ActivityStoring || !since.Equal(ended) {
			t.Errorf("%v since %v, want %v since %v", does, since, feed.ActivityStoring, ended)
		}
	})
}
