package notes

import (
	"maps"
	"testing"
	"time"
)

// Records share their properties with whoever has read them, so a change is one of a copy.
func TestAPropertyIsSetInACopy(t *testing.T) {
	before := map[string]string{"a": "1", "b": "2"}
	kept := maps.Clone(before)
	for _, c := range []struct {
		name, text string
		want       map[string]string
	}{
		{"a", "3", map[string]string{"a": "3", "b": "2"}},
		{"c", "3", map[string]string{"a": "1", "b": "2", "c": "3"}},
		{"b", "", map[string]string{"a": "1"}},
		{"c", "", before},
	} {
		if got := Set(before, c.name, c.text); !maps.Equal(got, c.want) || !maps.Equal(before, kept) {
			t.Errorf("%s=%q: %v of %v, want %v", c.name, c.text, got, before, c.want)
		}
	}
	if got := Set(nil, "a", "1"); got["a"] != "1" {
		t.Errorf("set in none: %v", got)
	}
}

func TestWhatIsNoCountIsZero(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "7": 7, "-7": 0, "seven": 0, "1700000000000": 1_700_000_000_000} {
		if got := Number(map[string]string{"n": text}, "n"); got != want {
			t.Errorf("%q counts as %d, want %d", text, got, want)
		}
	}
}

func TestADueIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 30, 700, time.FixedZone("east", 3600))
	d, ok := ReadDue(Due{By: at, Sent: at.Add(-time.Second)}.String())
	if !ok || !d.By.Equal(at) || !d.Sent.Equal(at.Add(-time.Second)) {
		t.Errorf("read %v, %v", d, ok)
	}
	for _, text := range []string{"", "soon", "2026-01-01T00:00:30Z", "2026-01-01T00:00:30Z soon"} {
		if d, ok := ReadDue(text); ok {
			t.Errorf("%q is due %v", text, d)
		}
	}
}
