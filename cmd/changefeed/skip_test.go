package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
)

// failing is a batch of a lease, of the changes of some LSNs.
func failing(lease string, more bool, lsns ...int64) admin.Failing {
	f := admin.Failing{Lease: feed.Lease{Token: lease}, More: more}
	for _, lsn := range lsns {
		f.Changes = append(f.Changes, admin.FailedChange{ID: "item", Key: feed.Key("oslo"), LSN: lsn})
	}
	return f
}

// Without flags the first batch of the only lease that fails is meant; with flags a single change, which may be one of
// more than can be skipped at once.
func TestTheFlagsOfASkipMeanABatchOrAChange(t *testing.T) {
	first, second, many := failing("-80", false, 1, 2), failing("-80", false, 7), failing("-80", true, 20, 21)
	other := failing("80-FF", false, 4)
	for name, c := range map[string]struct {
		all  []admin.Failing
		lsn  int64
		want []int64 // nil is a refusal
		more bool
	}{
		"a batch":                  {[]admin.Failing{first}, 0, []int64{1, 2}, false},
		"two batches of a lease":   {[]admin.Failing{first, second}, 0, []int64{1, 2}, false},
		"two leases":               {[]admin.Failing{first, second, other}, 0, nil, false},
		"a change":                 {[]admin.Failing{first, second, other}, 4, []int64{4}, false},
		"a batch that is too long": {[]admin.Failing{many}, 0, []int64{20, 21}, true},
		"a change of it":           {[]admin.Failing{first, many}, 21, []int64{21}, false},
		"no change":                {[]admin.Failing{first, many}, 5, nil, false},
		"nothing fails":            {nil, 0, nil, false},
	} {
		o := skipOptions{lsn: c.lsn}
		got, err := unit.PickFailing(c.all, "mailer", o.meant())
		var lsns []int64
		for _, change := range got.Changes {
			lsns = append(lsns, change.LSN)
		}
		if (err != nil) != (c.want == nil) || len(lsns) != len(c.want) || len(lsns) > 0 && lsns[0] != c.want[0] ||
			got.More != c.more {
			t.Errorf("%s: LSNs %v, more %v, %v, want %v, more %v", name, lsns, got.More, err, c.want, c.more)
		}
	}
	o := skipOptions{change: "item"}
	if _, err := unit.PickFailing([]admin.Failing{first}, "mailer", o.meant()); !errors.As(err, new(usage.Error)) {
		t.Errorf("two versions of an item: %v, want that one is named", err)
	}
}

// Who is asked about a batch is told that its good changes are skipped too, however short it is.
func TestTheQuestionOfASkipSaysThatABatchIsSkippedAsAWhole(t *testing.T) {
	const whole = ", also the good ones of the batch (--change names one)"
	for want, f := range map[string]admin.Failing{
		"Skip 1 change of lease -80 of mailer?":               failing("-80", false, 1),
		"Skip 2 changes of lease -80 of mailer" + whole + "?": failing("-80", false, 1, 2),
	} {
		if got := skipQuestion(f, "mailer"); got != want {
			t.Errorf("the question is %q, want %q", got, want)
		}
	}
}

// The changes that were skipped are named, also if the history could not be written; those of a skip that was refused
// are not.
func TestOnlyWhatWasSkippedIsNamed(t *testing.T) {
	const named = `skipped change "item" of key ["oslo"], LSN 7, of lease -80: 3 attempts since 2026-01-02T03:04:05Z` + "\n"
	unrecorded := fmt.Errorf("skip was carried out, and %w", admin.ErrNotRecorded)
	refused := fmt.Errorf("%w; %w", feed.ErrConflict, admin.ErrNotRecorded)
	for name, c := range map[string]struct {
		done   bool
		failed error
		want   string
	}{
		"skipped":                   {true, nil, named},
		"skipped, without its line": {true, unrecorded, named},
		"refused":                   {false, feed.ErrConflict, ""},
		"refused, without its line": {false, refused, ""},
	} {
		var out strings.Builder
		var o skipOptions
		o.report = report.New(report.Text, &out)
		f := failing("-80", false, 7)
		f.Done, f.Attempts, f.Since = c.done, 3, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		if err := o.writeSkip(f, "skipped", c.failed); err != nil || out.String() != c.want {
			t.Errorf("%s: got %q, %v, want %q", name, out.String(), err, c.want)
		}
	}
}
