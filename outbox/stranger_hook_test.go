package outbox_test

import (
	"context"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
)

// The publishing hook's second part is called also when the publisher panics, or a span never ends.
func TestStrangerHookAndPanic(t *testing.T) {
	began, ended := 0, 0
	r := newRelay(t, publisherFunc(func(context.Context, []outbox.Message) (int, error) { panic("x") }), outbox.RelayOptions{Hooks: outbox.RelayHooks{
		Publishing: func(ctx context.Context, _ []outbox.Message) (context.Context, func(int, error)) {
			began++
			return ctx, func(int, error) { ended++ }
		},
	}})
	func() {
		defer func() { recover() }()
		body := []byte(`{"id":"e","partitionKey":"c1","type":"domainEvent","data":{"action":"a"}}`)
		r.Handle(t.Context(), &changefeed.Batch{Changes: []changefeed.Change{{ID: "e", Body: body}}})
	}()
	if began != ended {
		t.Errorf("began %d, ended %d; status %+v", began, ended, r.Status())
	}
}
