package suspects

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A suspect whose lease has moved to another instance never comes again. So the others wait for a minute at most.
func TestASuspectThatNeverComesIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Suspects
		s.Add("moved away")
		turn := NewTurn()
		leave, err := s.Enter(t.Context(), turn)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		short, cancel := context.WithTimeout(t.Context(), carefulTime/2)
		defer cancel()
		if _, err := s.Enter(short, turn); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second batch beside the first: %v, want none for a minute", err)
		}
		time.Sleep(carefulTime / 2) // in the bubble, which costs no time
		second, err := s.Enter(t.Context(), turn)
		if err != nil {
			t.Fatal(err)
		}
		second()
	})
}
