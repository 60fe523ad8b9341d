package kafkapub_test

import (
	"context"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/kafkapub"
)

func ExamplePublisher() {
	cluster, err := kfake.NewCluster(kfake.SeedTopics(4, "contacts"))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()

	p, err := kafkapub.New(cluster.ListenAddrs(), "contacts", kafkapub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	n, err := p.Publish(context.Background(), []outbox.Message{
		{ID: "1", Key: "ada", Action: "ContactCreatedEvent", Source: "/contacts", Seq: 1, Data: []byte(`{"name":"Ada"}`)},
		{ID: "2", Key: "ada", Action: "ContactNameUpdatedEvent", Source: "/contacts", Seq: 2, Data: []byte(`{"name":"Ada L."}`)},
	})
	fmt.Println(n, "messages", err)
	// Output: 2 messages <nil>
}
