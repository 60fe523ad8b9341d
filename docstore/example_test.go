package docstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func Example() {
	ctx := context.Background()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	orders, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/customer"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, doc := range []string{
		`{"id":"1","customer":"ada","total":12}`,
		`{"id":"2","customer":"bob","total":7}`,
		`{"id":"1","customer":"ada","total":15}`,
	} {
		if _, err := orders.Upsert(ctx, []byte(doc)); err != nil {
			log.Fatal(err)
		}
	}
	page, err := orders.Read(ctx, feed.FullRange(), feed.Position{Start: feed.FromBeginning()}, feed.ReadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, ch := range page.Changes {
		fmt.Println(ch.LSN, ch.Op, ch.PartitionKey, ch.ID)
	}
	fmt.Println("next", page.Next)
	// Output:
	// 2 upsert ["bob"] 2
	// 3 upsert ["ada"] 1
	// next "3"
}

func ExampleContainer_Commit() {
	ctx := context.Background()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	c, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "contacts", Paths: []string{"/tenant"}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Commit(ctx, feed.Key("acme"), []feed.Write{
		{Op: feed.WriteCreate, Body: []byte(`{"id":"c1","tenant":"acme","name":"Ada"}`)},
		{Op: feed.WriteReplace, Body: []byte(`{"id":"c2","tenant":"acme","name":"Bob"}`)},
	})
	fmt.Println(err)
	fmt.Println(c.Count(), "documents")
	// Output:
	// write 1 (Replace ""): item "c2": not found
	// 0 documents
}

func ExampleContainer_Split() {
	ctx := context.Background()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	c, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}})
	if err != nil {
		log.Fatal(err)
	}
	parts, err := c.Split(ctx, "0")
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range parts {
		fmt.Println(p.ID, p.Range, p.Parents)
	}
	// Output:
	// 1 -1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF [0]
	// 2 1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF [0]
}
