package natspub_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
)

// A durable consumer has each event handled, in order, at least once: it goes on after the last one that it
// acknowledged, and with MaxAckPending 1 it gets no event before that.
func ExamplePublisher_Conn() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	to, err := natspub.Embedded(ctx, dir, natspub.Options{Prefix: "contacts"})
	if err != nil {
		log.Fatal(err)
	}
	defer to.Close()
	for range 2 { // published again, as after a crash: the stream has them once
		if _, err := to.Publish(ctx, []outbox.Message{
			{
				ID: "1", Key: "ada", Action: "ContactCreatedEvent", Source: "/contacts", Seq: 1,
				Data: []byte(`{"name":"Ada"}`),
			},
			{
				ID: "2", Key: "ada", Action: "ContactNameUpdatedEvent", Source: "/contacts", Seq: 2,
				Data: []byte(`{"name":"Ada L."}`),
			},
		}); err != nil {
			log.Fatal(err)
		}
	}

	js, err := jetstream.New(to.Conn())
	if err != nil {
		log.Fatal(err)
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, natspub.DefaultStream, jetstream.ConsumerConfig{
		Durable: "mailer", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1,
	})
	if err != nil {
		log.Fatal(err)
	}
	read, err := consumer.Messages()
	if err != nil {
		log.Fatal(err)
	}
	defer read.Stop()
	for range 2 {
		msg, err := read.Next()
		if err != nil {
			log.Fatal(err)
		}
		event, err := natspub.Message(msg.Headers(), msg.Data())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(msg.Subject(), event.Seq, event.Action, string(event.Data))
		if err := msg.DoubleAck(ctx); err != nil { // after it is handled
			log.Fatal(err)
		}
	}
	// Output:
	// contacts.ada 1 ContactCreatedEvent {"name":"Ada"}
	// contacts.ada 2 ContactNameUpdatedEvent {"name":"Ada L."}
}

func ExampleOptions_Subject() {
	o := natspub.Options{Prefix: "contacts"}
	fmt.Println(o.Subject("0b6bcb6e-8d3c"))
	subject := o.Subject("ada@example.com")
	fmt.Println(subject)
	fmt.Println(o.Key(subject))
	// Output:
	// contacts.0b6bcb6e-8d3c
	// contacts.ada%40example%2Ecom
	// ada@example.com true
}
