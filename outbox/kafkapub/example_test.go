package kafkapub_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
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
		{
			ID: "1", Key: "ada", Action: "ContactCreatedEvent", Source: "/contacts", Seq: 1,
			Data: []byte(`{"name":"Ada"}`),
		},
		{
			ID: "2", Key: "ada", Action: "ContactNameUpdatedEvent", Source: "/contacts", Seq: 2,
			Data: []byte(`{"name":"Ada L."}`),
		},
	})
	fmt.Println(n, "messages", err)
	// Output: 2 messages <nil>
}

// A relay that publishes each event once: the handler of a processor, with the options that it needs.
func ExampleExactlyOnce() {
	ctx, stop := context.WithCancel(context.Background())
	cluster, err := kfake.NewCluster(kfake.SeedTopics(4, "contacts"))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	dir, err := os.MkdirTemp("", "contacts")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	contacts, err := db.CreateContainer(ctx, docstore.ContainerSpec{
		ID: "contacts", Paths: []string{"/partitionKey"},
		DefaultTTL: new(docstore.NoDefaultTTL),
	})
	if err != nil {
		log.Fatal(err)
	}
	container, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		log.Fatal(err)
	}
	leases, err := docstore.NewLeases(ctx, container, "relay", contacts)
	if err != nil {
		log.Fatal(err)
	}
	event := `{"id":"1","partitionKey":"ada","type":"domainEvent","data":{"action":"ContactCreatedEvent","name":"Ada"}}`
	if _, err := contacts.Create(ctx, []byte(event)); err != nil {
		log.Fatal(err)
	}

	once, err := kafkapub.NewExactlyOnce(cluster.ListenAddrs(), "contacts", "relay",
		kafkapub.ExactlyOnceOptions{Source: "/contacts"})
	if err != nil {
		log.Fatal(err)
	}
	p, err := changefeed.New(contacts, leases, once, changefeed.Options{}) // refuses keys in parallel, and dead letters
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			log.Fatal(err)
		}
	})

	consumer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("contacts"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	for _, record := range consumer.PollFetches(ctx).Records() {
		fmt.Printf("%s %s\n", record.Key, record.Value)
	}
	stop()
	running.Wait()
	// Output: ada {"action":"ContactCreatedEvent","name":"Ada"}
}
