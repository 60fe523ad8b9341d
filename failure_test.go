package changefeed

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"
)

// What a handler says of a batch of 3 changes counts if the batch has them. Else the whole batch has failed.
func TestAFailureCountsIfItFitsItsBatch(t *testing.T) {
	bad := errors.New("bad")
	for _, c := range []struct {
		name  string
		err   error
		done  int
		items map[int]error
		after time.Duration
	}{
		{"any error", bad, 0, nil, 0},
		{"done up to the last", &Failure{Done: 2, Err: bad}, 2, nil, 0},
		{"wrapped", fmt.Errorf("mailer: %w", &Failure{Done: 1, Err: bad, After: time.Second}), 1, nil, time.Second},
		{"one item", &Failure{Items: map[int]error{2: bad}}, 0, map[int]error{2: bad}, 0},
		{"no item", &Failure{Items: map[int]error{}, Err: bad}, 0, nil, 0},
		{"all are done", &Failure{Done: 3, Err: bad}, 0, nil, 0},
		{"fewer than none", &Failure{Done: -1, Err: bad}, 0, nil, 0},
		{"an item too many", &Failure{Items: map[int]error{0: bad, 3: bad}, After: time.Second}, 0, nil, time.Second},
		{"an item before the first", &Failure{Items: map[int]error{-1: bad}}, 0, nil, 0},
	} {
		got := failureOf(c.err, 3, true)
		same := func(a, b error) bool { return errors.Is(a, b) }
		if got.Err != c.err || !got.Late || got.Done != c.done || got.After != c.after || !maps.EqualFunc(got.Items, c.items, same) || (got.Items == nil) != (c.items == nil) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
