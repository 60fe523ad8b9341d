package terminal

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestALongCommandShowsThatItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines strings.Builder
		failed := errors.New("failed")
		err := WithProgress(&lines, func() string { return "at work" }, func() error {
			time.Sleep(2*LineEvery + time.Second)
			return failed
		})
		if !errors.Is(err, failed) || lines.String() != "at work\nat work\n" {
			t.Errorf("got %v, and the lines %q", err, lines.String())
		}
	})
}
