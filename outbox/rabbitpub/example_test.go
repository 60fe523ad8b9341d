package rabbitpub_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/rabbitpub"
)

func ExamplePublisher() {
	p, err := rabbitpub.New("amqp://relay:secret@localhost:1/", "contacts", rabbitpub.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	ctx, gone := context.WithCancelCause(context.Background())
	gone(errors.New("the lease has gone"))
	fmt.Println(p.Publish(ctx, []outbox.Message{{
		ID: "1", Key: "ada", Action: "ContactCreatedEvent",
		Data: []byte(`{}`),
	}}))
	// Output: 0 the lease has gone
}
