package instance_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
)

// pairOf returns the held halves of the key space.
func pairOf(t *testing.T) (left, right *instance.Held) {
	in := instancetest.Idle(t.Context(), nil, instance.Options{})
	parts := feed.FullRange().Cut(2)
	left, right = in.Hold(feed.Record{Range: parts[0]}), in.Hold(feed.Record{Range: parts[1]})
	t.Cleanup(func() { left.Lose(feed.ErrLeaseLost); right.Lose(feed.ErrLeaseLost) })
	return left, right
}

// Workers that are called to a meeting end their waits, and hear each other, also after the end of the meeting.
func TestWorkersTalkInAMeeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := pairOf(t)
		if left.Seat() != nil || left.UntilCalled().Err() != nil {
			t.Error("a worker is in a meeting before it is called")
		}
		if !instance.Meet(left, right, 1) || left.UntilCalled().Err() == nil || right.UntilCalled().Err() == nil {
			t.Error("the workers are not called")
		}
		l, r := left.Seat(), right.Seat()
		if l.Of != feed.FullRange() || !l.IsLeft || r.IsLeft {
			t.Errorf("seats %+v and %+v", l, r)
		}
		go r.Say(instance.Word{LSN: 7})
		if heard, ok := l.Exchange(t.Context(), instance.Word{LSN: 5}); !ok || heard.LSN != 7 {
			t.Errorf("the left worker heard %+v, %v", heard, ok)
		}
		l.Say(instance.Word{Made: instance.MadeInTime})
		l.End()
		if heard, ok := r.Hear(t.Context()); !ok || heard.LSN != 5 {
			t.Errorf("the right worker heard %+v, %v", heard, ok)
		}
		if heard, ok := r.Hear(t.Context()); !ok || heard.Made != instance.MadeInTime {
			t.Errorf("the right worker heard %+v, %v, after the end", heard, ok)
		}
		if _, ok := r.Hear(t.Context()); ok || !r.IsOver() {
			t.Error("the right worker heard more than was said")
		}
	})
}

// What a worker said before the end of the meeting is always heard: it may have made the lease of both.
func TestTheLastWordIsHeardAfterTheEnd(t *testing.T) {
	for range 50 {
		left, right := pairOf(t)
		instance.Meet(left, right, 1)
		other := right.Seat()
		left.Seat().Say(instance.Word{Made: instance.MadeInTime})
		left.Leave()
		if heard, ok := other.Hear(t.Context()); !ok || heard.Made != instance.MadeInTime {
			t.Fatalf("the right worker heard %+v, %v", heard, ok)
		}
	}
}

// A worker is in a single meeting at a time. After it has left, the other worker hears nothing, and both can be called
// again.
func TestAWorkerThatLeavesEndsTheMeeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := pairOf(t)
		if !instance.Meet(left, right, 1) || instance.Meet(left, right, 1) {
			t.Error("a worker is in two meetings, or in none")
		}
		other := right.Seat()
		left.Leave()
		if _, ok := other.Hear(t.Context()); ok || !other.IsOver() || left.Seat() != nil ||
			left.UntilCalled().Err() != nil {
			t.Error("the meeting is not over")
		}
		if instance.Meet(left, right, 1) || left.Seat() == nil || !left.Seat().IsOver() {
			t.Error("a worker meets another that is still in a meeting")
		}
		left.Leave()
		right.Leave()
		if !instance.Meet(left, right, 1) {
			t.Error("the workers cannot meet again")
		}
		seat := left.Seat()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok := seat.Hear(ctx); ok || seat.IsOver() {
			t.Error("a worker heard something, or the meeting is over, though nobody said anything")
		}
		left.Stop(instance.Ending{Why: feed.ReasonStopped})
		if left.UntilCalled().Err() == nil {
			t.Error("a worker that is stopped waits for a call")
		}
	})
}
