package unit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/records"
)

func TestLeasesStandStillIfNobodyCanWorkOnThem(t *testing.T) {
	failed := func(err error) changefeed.Lag { return changefeed.Lag{Err: fmt.Errorf("lease -FF: %w", err)} }
	for _, tt := range []struct {
		name  string
		lags  []changefeed.Lag
		stuck int // errors
		left  bool
	}{
		{"no lease", nil, 0, false},
		{"nothing is pending", []changefeed.Lag{{}, {}}, 0, false},
		{"something is pending", []changefeed.Lag{{}, {Pending: 1}, {}}, 0, true},
		{"nobody knows", []changefeed.Lag{failed(feed.ErrThrottled), {}}, 0, true},
		{"another lease has its range", []changefeed.Lag{failed(feed.ErrOverlap), {}}, 0, false},
		{"it cannot be read", []changefeed.Lag{failed(feed.ErrBadLease), {}}, 1, false},
		{"what comes next is gone", []changefeed.Lag{failed(feed.ErrTooOld), {Pending: 1}}, 1, true},
		{"its position is ahead of the feed", []changefeed.Lag{
			{Lease: feed.Lease{Token: "-FF"}, Err: feed.ErrAhead},
			{},
		}, 1, false},
		{"nothing says where it begins", []changefeed.Lag{failed(feed.ErrNoStart), failed(feed.ErrBadLease)}, 2, false},
	} {
		stuck, left := standing(tt.lags)
		if n := strings.Count(fmt.Sprint(stuck), "lease -FF"); n != tt.stuck || (stuck == nil) != (n == 0) ||
			left != tt.left {
			t.Errorf("%s: %v, others have changes left: %v", tt.name, stuck, left)
		}
	}
}

// looks is a lease store that answers each look in its own way, and the last one for ever.
type looks struct {
	feed.LeaseStore
	all []func() ([]feed.Record, error)
	at  []time.Time // of the looks
}

func (l *looks) List(context.Context) ([]feed.Record, time.Time, error) {
	records, err := l.all[min(len(l.at), len(l.all)-1)]()
	l.at = append(l.at, time.Now())
	return records, time.Now(), err
}

// Who waits until all is handled is not told so too early, nor late; and hears of leases on which nobody can work.
func TestTheEndOfAUnitsWorkIsAwaited(t *testing.T) {
	const wait = 10 * time.Minute
	lease := func(position string) feed.Record {
		return feed.Record{
			Kind: feed.KindLease, ID: "mailer..-FF", Token: "-FF", Range: feed.FullRange(), Version: 1,
			Position: feed.At(position),
		}
	}
	look := func(leases ...feed.Record) func() ([]feed.Record, error) {
		return func() ([]feed.Record, error) { return leases, nil }
	}
	fails := func() ([]feed.Record, error) { return nil, errors.New("connection refused") }
	broken := lease(`"4"`)
	broken.Err = feed.ErrBadLease
	paused := lease(`"2"`)
	records.MarkPaused(&paused, time.Now())
	none, behind, done, stuck, ahead := look(), look(lease(`"2"`)), look(lease(`"4"`)), look(broken), look(lease(`"9"`))
	for _, tt := range []struct {
		name    string
		looks   []func() ([]feed.Record, error)
		want    string
		reports int
	}{
		{"nothing to do", []func() ([]feed.Record, error){done}, "handled", 0},
		{"no lease yet", []func() ([]feed.Record, error){none, none, done}, "handled", 0},
		{"no lease", []func() ([]feed.Record, error){none}, "ended", 0},
		{"behind", []func() ([]feed.Record, error){behind, behind, done}, "handled", 0},
		{"behind for ever", []func() ([]feed.Record, error){behind}, "ended", 0},
		{"paused for ever", []func() ([]feed.Record, error){look(paused)}, "ended", 0},
		{"paused for a while", []func() ([]feed.Record, error){look(paused), look(paused), done}, "handled", 0},
		{"a store that is away for a while", []func() ([]feed.Record, error){fails, behind, fails, done}, "handled", 2},
		{"stuck", []func() ([]feed.Record, error){behind, stuck}, "stuck", 0},
		{"in the middle of a split", []func() ([]feed.Record, error){stuck, done}, "handled", 0},
		{"ahead for ever", []func() ([]feed.Record, error){ahead}, "stuck", 0},
		{"ahead for a while", []func() ([]feed.Record, error){ahead, ahead, ahead, done}, "handled", 0},
		{"in the middle of two splits", []func() ([]feed.Record, error){stuck, behind, stuck, done}, "handled", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t)
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				begun, reports, leases := time.Now(), 0, &looks{all: tt.looks}
				handled, err := AwaitHandled(ctx, o.monitored, leases, func(error) { reports++ })
				got := map[bool]string{true: "handled", false: "ended"}[handled]
				if err != nil {
					got = "stuck"
				}
				if got != tt.want || reports != tt.reports || (got == "ended") != (time.Since(begun) == wait) {
					t.Errorf("%s after %v, %v, with %d reports, want %s", got, time.Since(begun), err, reports, tt.want)
				}
				for i, at := range leases.at[1:] {
					if pause := at.Sub(leases.at[i]); pause > lastLook {
						t.Errorf("look %d comes %v after the one before", i+1, pause)
					}
				}
			})
		})
	}
}

// What fails because the wait is over is nobody's mistake.
func TestTheEndOfAWaitIsNoFailure(t *testing.T) {
	o := newOffice(t)
	ctx, cancel := context.WithCancel(t.Context())
	leases := &looks{all: []func() ([]feed.Record, error){func() ([]feed.Record, error) {
		cancel()
		return nil, context.Canceled
	}}}
	if handled, err := AwaitHandled(ctx, o.monitored, leases, func(err error) {
		t.Errorf("reported: %v", err)
	}); handled || err != nil {
		t.Errorf("handled: %v, %v", handled, err)
	}
}
