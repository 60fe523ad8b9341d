package fold

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestOneLineAMinuteForAKind(t *testing.T) {
	var f Fold
	now := time.Unix(0, 0)
	admit := func(after time.Duration, kind, subject string, want Counts, written bool) {
		t.Helper()
		now = now.Add(after)
		if c, ok := f.Admit(kind, subject, now); ok != written || c != want {
			t.Errorf("%s of %s: %+v, written %v; want %+v, %v", kind, subject, c, ok, want, written)
		}
	}
	admit(time.Hour, "away", "a", Counts{}, true)
	admit(time.Second, "away", "a", Counts{}, false)
	admit(time.Second, "away", "b", Counts{}, false)
	admit(time.Second, "other", "b", Counts{}, true)
	admit(time.Minute, "away", "a", Counts{Repeated: 2, Subjects: 2}, true)
	for i := range 18 {
		admit(0, fmt.Sprint("kind ", i), "a", Counts{}, true)
	}
	admit(0, "last", "a", Counts{}, true)
	admit(0, "too many", "a", Counts{}, false)
	admit(time.Minute, "again", "a", Counts{NoRoom: 1}, true)
	admit(2*time.Hour, "again", "a", Counts{}, true)
	if len(f.kinds) != 1 {
		t.Errorf("%d kinds are remembered", len(f.kinds))
	}
}

func TestWhatIsAlike(t *testing.T) {
	cause := errors.New("refused by 10.0.0.1:8081, activity 7f")
	err := fmt.Errorf("read: %w", errors.Join(cause, errors.New("another")))
	if got := Root(err); got != cause {
		t.Errorf("the root is %v", got)
	}
	if got := Words(cause.Error()); got != "refused by activity " {
		t.Errorf("its words are %q", got)
	}
}

// Each error that was not written is counted once.
func TestUnwrittenErrorsAreCountedOnce(t *testing.T) {
	var f Fold
	now := time.Unix(0, 0).Add(time.Hour)
	for i := range most + 5 {
		f.Admit(fmt.Sprint(i), "", now)
	}
	now = now.Add(period)
	if c, ok := f.Admit("x", "", now); !ok || c != (Counts{NoRoom: 5}) {
		t.Errorf("written %v with %+v, want 5 for which there was no room", ok, c)
	}
	if c, ok := f.Admit("y", "", now); !ok || c != (Counts{}) {
		t.Errorf("written %v with %+v, want no counts", ok, c)
	}
}
