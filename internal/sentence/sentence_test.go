package sentence

import (
	"strings"
	"testing"
	"time"
)

func TestTimesAreRounded(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0s", 1.26: "1.3s", 59.9: "59.9s", 60: "1m", 75.4: "1m15s", 3600: "1h", 3660: "1h1m", 36610: "10h10m10s",
	} {
		if got := Seconds(seconds); got != want {
			t.Errorf("%v s: got %s, want %s", seconds, got, want)
		}
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -100: "-100"} {
		if got := Number(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
	if a, b := Count(1, "lease"), Count(2000, "lease"); a != "1 lease" || b != "2,000 leases" {
		t.Errorf("got %q and %q", a, b)
	}
}

// A time of another day has its date.
func TestATimeOfAnotherDayHasItsDate(t *testing.T) {
	now := time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		0: "13:00:00", 23 * time.Hour: "14:00:00", 24 * time.Hour: "2026-03-03 13:00:00",
	} {
		if got := Clock(now.Add(-ago), now); got != want {
			t.Errorf("%v ago: got %s, want %s", ago, got, want)
		}
	}
}

// A lease may hold a thousand keys, in any script.
func TestTheFirstKeysOfManyAreNamed(t *testing.T) {
	long := strings.Repeat("é", 41)
	for _, c := range []struct {
		keys []string
		want string
	}{
		{[]string{"a", "b", "c"}, "a b c"},
		{[]string{"a", "b", "c", "d"}, "a b c …"},
		{[]string{long, long[:80]}, long[:80] + "… " + long[:80]},
	} {
		if got := FirstOf(c.keys); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// What others have written controls no terminal.
func TestATextIsOnOneLine(t *testing.T) {
	if got, want := OneLine("\x1b[2Jno\n mail\t👩‍🚀"), "[2Jno mail 👩‍🚀"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if a, b := Capital("free: x"), Capital(""); a != "Free: x." || b != "" {
		t.Errorf("got %q and %q", a, b)
	}
}
