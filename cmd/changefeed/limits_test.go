package main

import (
	"errors"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/usage"
)

// A kill after the drain would come when the processor has given the handler up.
func TestTheGraceEndsBeforeTheDrain(t *testing.T) {
	for _, tt := range []struct {
		grace time.Duration
		taken bool
	}{{0, false}, {time.Second, true}, {10*time.Second - 1, true}, {10 * time.Second, false}, {11 * time.Second, false}} {
		o := runOptions{grace: tt.grace}
		o.Options.Drain = 10 * time.Second
		if err := o.check(); (err == nil) != tt.taken || err != nil && !errors.As(err, new(usage.Error)) {
			t.Errorf("a grace of %v beside a drain of 10s: %v", tt.grace, err)
		}
	}
}

// Letters may be removed for good, so nothing is guessed.
func TestLettersAreNamedOrAllOfThem(t *testing.T) {
	for _, tt := range []struct {
		all   bool
		ids   []string
		taken bool
	}{{false, nil, false}, {true, nil, true}, {false, []string{"12.0"}, true}, {true, []string{"12.0"}, false}} {
		o := letterOptions{all: tt.all}
		o.query.IDs = tt.ids
		if err := o.checkIDs(); (err == nil) != tt.taken || err != nil && !errors.As(err, new(usage.Error)) {
			t.Errorf("--all (%v) and IDs %v: %v", tt.all, tt.ids, err)
		}
	}
}
