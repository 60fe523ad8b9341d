package dispatch

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// What a handler says of a batch of 4 changes counts if the batch has them. Else the whole batch has failed.
func TestAFailureCountsIfItFitsItsBatch(t *testing.T) {
	bad, poison := errors.New("bad"), feed.Poison(errors.New("poison"))
	for _, c := range []struct {
		name  string
		err   error
		left  string // parts, h for hopeless, u for untried; what is wrong with it after "="
		after time.Duration
	}{
		{"any error", bad, "", 0},
		{"poison", poison, "", 0},
		{"done up to the last", &feed.Failure{Done: 3, Err: bad}, "[3]", 0},
		{
			"wrapped", fmt.Errorf("mailer: %w", &feed.Failure{Done: 1, Err: bad, After: time.Second}), "[1 2 3]",
			time.Second,
		},
		{"the rest is poison", &feed.Failure{Done: 1, Err: poison}, "[1 2 3]h", 0},
		{"one item", &feed.Failure{Items: map[int]error{2: bad}}, "[2]", 0},
		{"one item without a cause", &feed.Failure{Items: map[int]error{2: nil}}, "[2]", 0},
		{"all items", &feed.Failure{Items: map[int]error{0: bad, 1: bad, 2: bad, 3: bad}}, "[0 1 2 3]", 0},
		{
			"poison is alone", &feed.Failure{Items: map[int]error{0: bad, 1: poison, 2: bad, 3: bad}}, "[0] [1]h [2 3]",
			0,
		},
		{"what is done is passed over", &feed.Failure{Items: map[int]error{0: bad, 2: bad}}, "[0 2]", 0},
		{"what was not tried is apart", &feed.Failure{Items: map[int]error{
			0: feed.ErrUntried, 1: feed.ErrUntried,
			2: poison, 3: feed.ErrUntried,
		}}, "[0 1]u [2]h [3]u", 0},
		{
			"also from what failed", &feed.Failure{Items: map[int]error{0: bad, 1: feed.ErrUntried, 3: bad}},
			"[0] [1]u [3]", 0,
		},
		{"no item", &feed.Failure{Items: map[int]error{}, Err: bad}, "", 0},
		{"all are done", &feed.Failure{Done: 4, Err: bad}, "=Failure.Done is 4, want 0 to 3", 0},
		{"fewer than none", &feed.Failure{Done: -1, Err: bad}, "=Failure.Done is -1, want 0 to 3", 0},
		{
			"an item too many", &feed.Failure{Items: map[int]error{0: bad, 4: bad}, After: time.Second},
			"=Failure.Items names change 4, want 0 to 3", time.Second,
		},
		{"nothing was tried", &feed.Failure{Items: map[int]error{
			0: feed.ErrUntried, 1: feed.ErrUntried,
			2: feed.ErrUntried, 3: feed.ErrUntried,
		}}, "=Failure.Items has ErrUntried for all 4 changes", 0},
		{
			"an item before the first", &feed.Failure{Items: map[int]error{-1: bad}},
			"=Failure.Items names change -1, want 0 to 3", 0,
		},
	} {
		got := failureOf(c.err, 4, true)
		left := ""
		for _, p := range got.Left {
			if p.Err == nil {
				t.Errorf("%s: %v has no error", c.name, p.Changes)
			}
			left += fmt.Sprint(" ", p.Changes) + map[bool]string{true: "h"}[p.Hopeless] +
				map[bool]string{true: "u"}[p.Untried]
		}
		want, wrong, _ := strings.Cut(c.left, "=")
		if !errors.Is(got.Err, c.err) || (got.Err != c.err) != (wrong != "") ||
			!strings.Contains(got.Err.Error(), wrong) {
			t.Errorf("%s: the error is %q, want that of the handler, and that %q", c.name, got.Err, wrong)
		}
		if left = strings.TrimSpace(left); !got.Late || left != want || got.After != c.after ||
			got.Hopeless != feed.IsPoison(c.err) {
			t.Errorf("%s: %+v, left %q, want %q", c.name, got, left, want)
		}
	}
}
