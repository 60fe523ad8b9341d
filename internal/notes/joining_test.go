package notes

import (
	"testing"
	"time"
)

func TestAJoiningIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 30, 700, time.FixedZone("east", 3600))
	for _, into := range []string{"-FF", "05-1F"} {
		if j, ok := ReadJoining(Joining{into, at}.String()); !ok || j.Into != into || !j.Until.Equal(at) {
			t.Errorf("read %v, %v", j, ok)
		}
	}
	for _, text := range []string{"", "-FF", "-FF soon", "2026-01-01T00:00:30Z"} {
		if j, ok := ReadJoining(text); ok {
			t.Errorf("%q is %v", text, j)
		}
	}
}
