package migration

import "testing"

// TestProgressWithoutFigures: if the lag cannot be measured while items are copied, the line says only the phase.
func TestProgressWithoutFigures(t *testing.T) {
	t.Parallel()
	m := &measure{total: 10}
	m.now = Progress{Phase: copying, Pending: new(int64(4)), Share: new(0.6), Lag: new(1.5)}
	if got, want := m.line(m.now), "copying: 60 %, 6 of 10 changes"; got != want {
		t.Errorf("the line is %q, want %q", got, want)
	}
	m.forget()
	if got := m.line(m.now); got != copying {
		t.Errorf("the line is %q, want %q", got, copying)
	}
}
