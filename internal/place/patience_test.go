package place

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
)

// TestPatienceHasAnEnd has an account that is away for longer than that.
func TestPatienceHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		p := &Patience{Limit: time.Minute, Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
		begun := time.Now()
		away := errors.New("connection refused")
		err := p.during(t.Context(), func() error { return away })
		if took := time.Since(begun); !errors.Is(err, away) || took < time.Minute || took > time.Minute+lastRetry {
			t.Errorf("got %v after %v, want %v after a minute", err, took, away)
		}
		if len(said) != 1 {
			t.Errorf("said %q, want one line", said)
		}
	})
}

// TestWhatAnAccountAnswersIsNotAskedAgain has errors that patience cannot mend.
func TestWhatAnAccountAnswersIsNotAskedAgain(t *testing.T) {
	p := &Patience{Limit: time.Minute, Say: t.Logf}
	calls := 0
	err := p.during(t.Context(), func() error {
		calls++
		return changefeed.ErrNotFound
	})
	if !errors.Is(err, changefeed.ErrNotFound) || calls != 1 {
		t.Errorf("got %v after %d calls, want %v after one", err, calls, changefeed.ErrNotFound)
	}
}
