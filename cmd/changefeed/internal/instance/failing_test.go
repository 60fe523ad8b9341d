package instance

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// Whoever waits for run --once sees that a batch goes on failing, and no flood of it.
func TestABatchThatFailsAgainIsSaidEarlyAndThenRarely(t *testing.T) {
	var out bytes.Buffer
	var r repeats
	hooks := r.hooks(slog.New(slog.NewTextHandler(&out, nil)), changefeed.Options{
		RetryMin: firstRetry,
		RetryMax: lastRetry,
	})
	fails := func(from, to int) {
		for attempt := from; attempt <= to; attempt++ {
			hooks.Error(t.Context(), &feed.Error{
				Origin: feed.OriginHandler, Lease: "-FF",
				Err: &feed.BatchError{Attempt: attempt, Err: errors.New("no such table")},
			})
		}
	}
	fails(1, 20)
	fails(1, 20) // those of another lease are no news
	hooks.BatchDone(t.Context(), feed.BatchDone{Batch: &feed.Batch{Attempt: 4}, Err: errors.New("no such table")})
	fails(1, 3)
	hooks.Error(t.Context(), &feed.Error{Origin: feed.OriginSource, Err: errors.New("no answer")})
	hooks.BatchDone(t.Context(), feed.BatchDone{Batch: &feed.Batch{Attempt: 1}})
	fails(1, 3)
	out.WriteString("level=WARN mended\n") // nothing was said again before
	hooks.BatchDone(t.Context(), feed.BatchDone{Batch: &feed.Batch{Attempt: 4}})
	fails(1, 3)
	limited := (&repeats{}).hooks(slog.New(slog.NewTextHandler(&out, nil)), changefeed.Options{
		RetryMin: firstRetry,
		RetryMax: lastRetry, OnFailure: changefeed.FailurePolicy{MaxAttempts: 2},
	})
	// is parked
	limited.Error(t.Context(), &feed.Error{
		Origin: feed.OriginHandler, Lease: "-FF",
		Err: &feed.BatchError{Attempt: 2, Err: errors.New("no such table")},
	})
	var got []string
	for line := range strings.Lines(out.String()) {
		_, said, _ := strings.Cut(strings.TrimSpace(line), "level=WARN ")
		got = append(got, strings.TrimPrefix(said, `msg="a batch fails again and is tried again" lease=-FF `))
	}
	want := "attempt=2 next=200ms, attempt=4 next=800ms, attempt=8 next=12.8s, attempt=16 next=30s, mended, " +
		"attempt=2 next=200ms"
	if strings.Join(got, ", ") != want {
		t.Errorf("said %q, want %s", got, want)
	}
}

func TestTheEndSaysWhatWasParked(t *testing.T) {
	failed := feed.DeadLetter{Disposition: feed.DispositionFailed}
	held := feed.DeadLetter{Disposition: feed.DispositionHeld}
	for _, tt := range []struct {
		parked []feed.DeadLetter
		redone int
		want   string
	}{
		{nil, 1, ""},
		{[]feed.DeadLetter{failed}, 0, "ended: 1 change parked: see changefeed dlq list letters.ndjson --name mailer"},
		{
			[]feed.DeadLetter{failed, held, held},
			1,
			"ended: 3 changes parked (2 because an earlier change of the same key is parked); 1 letter handled again: " +
				"see changefeed dlq list letters.ndjson --name mailer",
		},
	} {
		var p parkedChanges
		hooks := p.hooks()
		for _, l := range tt.parked {
			hooks.Parked(t.Context(), l)
		}
		for range tt.redone {
			hooks.Redriven(t.Context(), feed.Redriven{Err: errors.New("failed again")})
			hooks.Redriven(t.Context(), feed.Redriven{})
		}
		said := ""
		p.reportParked(func(text string) { said += text }, "letters.ndjson", "mailer")
		if said != tt.want {
			t.Errorf("said %q, want %q", said, tt.want)
		}
	}
}

// One line says that an account is back, however many requests have failed. An error of another kind is no outage.
func TestTheEndOfAnOutageIsALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var away absence
		hooks := away.hooks(slog.New(slog.NewTextHandler(&log, nil)))
		refused := fmt.Errorf("read: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		for _, err := range []error{nil, feed.ErrGone, nil, refused, refused, feed.ErrThrottled, nil, nil} {
			hooks.ReadDone(t.Context(), feed.ReadDone{Err: err})
			hooks.StoreDone(t.Context(), feed.StoreDone{Err: err})
			hooks.WaitDone(t.Context(), feed.WaitDone{Err: err})
			time.Sleep(time.Second)
		}
		got := log.String()
		if strings.Count(got, "\n") != 1 || !strings.Contains(got, `"the account is back" after=3s`) {
			t.Errorf("the log is %q", got)
		}
	})
}

// An idle instance makes no request whose end has a hook of its own, but its reports say that the account is away.
func TestAnAccountThatIsBackIsToldAfterAnyRequest(t *testing.T) {
	var log bytes.Buffer
	var away absence
	hooks := away.hooks(slog.New(slog.NewTextHandler(&log, nil)))
	refused := fmt.Errorf("follow leases: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for _, err := range []error{feed.ErrThrottled, refused} {
		hooks.Error(t.Context(), &feed.Error{Origin: feed.OriginLeaseStore, Err: err})
		hooks.WaitDone(t.Context(), feed.WaitDone{})
	}
	if strings.Count(log.String(), "the account is back") != 1 {
		t.Errorf("the log is %q", &log)
	}
}

// A handler that cannot reach its own service, such as a webhook that is down, says nothing of the account.
func TestAHandlerThatCannotReachItsServiceIsNoAbsence(t *testing.T) {
	var log bytes.Buffer
	var away absence
	hooks := away.hooks(slog.New(slog.NewTextHandler(&log, nil)))
	refused := fmt.Errorf("webhook: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	hooks.Error(t.Context(), &feed.Error{Origin: feed.OriginHandler, Err: refused})
	hooks.StoreDone(t.Context(), feed.StoreDone{})
	if got := log.String(); got != "" {
		t.Errorf("the log is %q, want nothing", got)
	}
}
