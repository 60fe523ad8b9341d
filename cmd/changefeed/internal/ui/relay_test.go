package ui

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/outbox"
)

// A relay says what the broker has, what is on its way, and what went wrong.
func TestARelaySaysHowFarItIs(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		status outbox.RelayStatus
		want   []string
	}{
		{outbox.RelayStatus{}, []string{"The broker has accepted 0 messages."}},
		{
			outbox.RelayStatus{Published: 1, Lag: 2 * time.Second},
			[]string{"The broker has accepted 1 message, the last one 2s after its commit."},
		},
		{
			outbox.RelayStatus{
				Published: 1200, Lag: time.Second, Failed: 3, Parked: 1, Waiting: 2, Oldest: now.Add(-time.Minute),
				Expires: now.Add(time.Hour), Err: errors.New("no route to the broker"),
			},
			[]string{
				"The broker has accepted 1,200 messages, the last one 1s after its commit; 3 calls have failed; 1 event parked.",
				"On their way: events of 2 keys, the oldest for 1m; the first expires at 13:00:00 UTC.",
				"The last call has failed: no route to the broker",
			},
		},
		{
			outbox.RelayStatus{Waiting: 1, Oldest: now.Add(-3 * time.Second)},
			[]string{"The broker has accepted 0 messages.", "On their way: events of 1 key, the oldest for 3s."},
		},
	} {
		got := relaySentences(tt.status, now)
		if text, want := strings.Join(got, "\n"), strings.Join(tt.want, "\n"); text != want {
			t.Errorf("got\n%s\nwant\n%s", text, want)
		}
	}
}
