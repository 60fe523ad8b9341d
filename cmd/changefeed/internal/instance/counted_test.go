package instance

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/millrace/changefeed/feed"
)

func TestBatchesInHandAreCounted(t *testing.T) {
	failed := errors.New("failed")
	var during []string
	var h Handler
	h = Counted(feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
		during = h.Running()
		return ctx.Err()
	}))
	if err := h.Handle(t.Context(), &feed.Batch{LeaseToken: "-FF"}); err != nil ||
		!slices.Equal(during, []string{"-FF"}) {
		t.Errorf("in hand: %v, %v", during, err)
	}
	for cause, want := range map[error][]string{failed: nil, feed.ErrStopped: {"-FF"}} {
		ctx, end := context.WithCancelCause(t.Context())
		end(cause)
		for range 2 { // a lease is named once
			_ = h.Handle(ctx, &feed.Batch{LeaseToken: "-FF"})
		}
		if got := h.Unfinished(); !slices.Equal(got, want) {
			t.Errorf("cut by %v: %v, want %v", cause, got, want)
		}
	}
	ctx, end := context.WithCancelCause(t.Context())
	end(feed.ErrStopped)
	done := Counted(feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil }))
	if err := done.Handle(ctx, &feed.Batch{LeaseToken: "-FF"}); err != nil || len(done.Unfinished()) != 0 {
		t.Errorf("a batch that was finished after the stop counts as cut, %v", err)
	}
	if left := append(h.Running(), h.Unfinished()...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// The processor recovers a panic, and the batch is in nobody's hand then.
func TestABatchThatPanicsIsNotInHand(t *testing.T) {
	h := Counted(feed.HandlerFunc(func(context.Context, *feed.Batch) error { panic("broken") }))
	func() {
		defer func() { _ = recover() }()
		_ = h.Handle(t.Context(), &feed.Batch{LeaseToken: "-FF"})
	}()
	if left := h.Running(); len(left) != 0 {
		t.Errorf("in hand: %v", left)
	}
}

// opened is a handler that refuses leases and their end.
type opened struct{ feed.Handler }

var (
	errOpened = errors.New("opened")
	errClosed = errors.New("closed")
)

func (opened) Open(context.Context, feed.Lease) error               { return errOpened }
func (opened) Close(context.Context, feed.Lease, feed.Reason) error { return errClosed }

// A relay forgets the events of a lease when it is closed.
func TestAHandlerThatIsCountedIsOpenedAndClosed(t *testing.T) {
	for _, tt := range []struct {
		handler    feed.Handler
		open, shut error
	}{
		{opened{}, errOpened, errClosed},
		{feed.HandlerFunc(nil), nil, nil},
	} {
		h := Counted(tt.handler)
		open, shut := h.(feed.Opener).Open(t.Context(), feed.Lease{}), h.(feed.Closer).Close(t.Context(), feed.Lease{},
			feed.ReasonLost)
		if !errors.Is(open, tt.open) || !errors.Is(shut, tt.shut) {
			t.Errorf("%T: opened %v, closed %v, want %v, %v", tt.handler, open, shut, tt.open, tt.shut)
		}
	}
}
