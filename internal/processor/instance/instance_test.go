package instance_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
)

// A store, or a proxy before it, may ask for a pause of hours: nobody is asked for as long.
func TestPausesThatAreAskedForAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := instancetest.Idle(t.Context(), nil, instance.Options{})
		calls, begun := 0, time.Now()
		err := r.Paced(t.Context(), r.Random("test"), "", func() error {
			if calls++; calls < 4 {
				return &feed.ThrottledError{After: 5 * time.Hour}
			}
			return nil
		})
		if took := time.Since(begun); err != nil || took < 3*r.Options.RetryMax || took > 4*r.Options.RetryMax {
			t.Errorf("%v after %v, want three pauses of about %v", err, took, r.Options.RetryMax)
		}
	})
}

// What goes wrong at the end is told; that the end has come is not.
func TestErrorsAtTheEndAreTold(t *testing.T) {
	var told []error
	r := instancetest.Idle(t.Context(), nil, instance.Options{})
	r.Hooks.Error = func(err *feed.Error) { told = append(told, err.Err) }
	ended, end := context.WithCancelCause(t.Context())
	stop, away := errors.New("stop"), errors.New("away")
	end(stop)
	r.Report(ended, feed.OriginSource, "", stop)
	r.Report(ended, feed.OriginSource, "", away)
	r.Report(t.Context(), feed.OriginSource, "", context.Canceled)
	if !slices.Equal(told, []error{away, context.Canceled}) {
		t.Errorf("told %v", told)
	}
}

// The position before a page keeps the time from which it was read.
func TestThePositionBeforeAPageKeepsItsStart(t *testing.T) {
	from := feed.Position{Start: feed.FromTime(time.Unix(1, 0))}
	change := func(lsn int64) feed.Change { return feed.Change{LSN: lsn} }
	for _, c := range []struct{ page, want feed.Position }{
		{feed.Position{Token: `"9"`}, feed.Position{Token: `"6"`, Start: from.Start}},
		{feed.Position{Token: `"10"`}, from}, // a token of another kind: only the start is known
	} {
		if got := instance.StartOfPage((feed.Page{Changes: []feed.Change{change(7), change(9)}, Next: c.page}), from); got != c.want {
			t.Errorf("the position before the changes 7 and 9 with the token %s after them is %+v, want %+v", c.page.Token, got, c.want)
		}
	}
}
