// Make writes a small store with the build of the module that it is compiled in, or opens a store that another build
// wrote. See make.sh.
//
//	make close DIR    writes the store of this directory and closes it
//	make kill DIR     writes the store and ends without closing it, as a kill does
//	make try DIR      opens the existing store, and writes to it if this build accepts it
//
// Make prints each acknowledged write as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// acked is a write that the store acknowledged.
type acked struct {
	Container string
	ID        string
	Key       string          // the partition key, as JSON
	Body      json.RawMessage `json:",omitempty"` // as the store returned it; absent for a delete
	LSN       int64
}

var ctx = context.Background()

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

func say(c *docstore.Container, id string, key feed.PartitionKey, body []byte) {
	must(json.NewEncoder(os.Stdout).Encode(acked{c.ID(), id, string(key), body, c.Head()}))
}

// write upserts a document. id is the id, and in the containers docs and plain the partition key too.
func write(c *docstore.Container, key feed.PartitionKey, id, rest string) {
	body := fmt.Sprintf(`{"id":%q,%s,"pad":%q}`, id, rest, strings.Repeat(id+" ", 30))
	item := value(c.Upsert(ctx, []byte(body)))
	say(c, id, key, item.Body)
}

func put(c *docstore.Container, id string, v int, ttl string) {
	write(c, feed.Key(id), id, fmt.Sprintf(`"pk":%q,"v":%d%s`, id, v, ttl))
}

func remove(c *docstore.Container, key feed.PartitionKey, id string) {
	must(c.Delete(ctx, key, id, ""))
	say(c, id, key, nil)
}

// together writes three documents of one key in one transaction.
func together(c *docstore.Container, v int) {
	var writes []feed.Write
	for i := range 3 {
		writes = append(writes, feed.Write{Op: feed.WriteUpsert,
			Body: fmt.Appendf(nil, `{"id":"x%d","pk":"together","v":%d}`, i, v)})
	}
	for i, r := range value(c.Commit(ctx, feed.Key("together"), writes)) {
		say(c, fmt.Sprint("x", i), feed.Key("together"), r.Body)
	}
}

func user(c *docstore.Container, n, v int) {
	write(c, feed.Key("t", fmt.Sprint("u", n)), "profile",
		fmt.Sprintf(`"tenant":"t","user":"u%d","v":%d,"email":"u%d@example.com"`, n, v, n))
}

func split(c *docstore.Container, nth int) {
	parts := value(c.Partitions(ctx))
	value(c.Split(ctx, parts[nth].ID))
}

// first contains the writes before the store is closed and opened once, so the store has tables and logs.
func first(db *docstore.DB) {
	own := docstore.NoDefaultTTL
	docs := value(db.CreateContainer(ctx, docstore.ContainerSpec{ID: "docs", Paths: []string{"/pk"},
		Retention: time.Hour, DefaultTTL: &own}))
	plain := value(db.CreateContainer(ctx, docstore.ContainerSpec{ID: "plain", Paths: []string{"/pk"}, HashVersion: 1}))
	users := value(db.CreateContainer(ctx, docstore.ContainerSpec{ID: "users", Paths: []string{"/tenant", "/user"},
		UniqueKeys: [][]string{{"/email"}}, Ranges: 2}))
	leases := value(db.CreateContainer(ctx, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}}))
	for i := range 16 {
		put(docs, fmt.Sprint("d", i), 1, "")
		put(plain, fmt.Sprint("p", i), 1, "")
	}
	for i := range 4 {
		put(docs, fmt.Sprint("brief", i), 1, `,"ttl":600`)
		user(users, i, 1)
		write(leases, feed.Key(fmt.Sprint("l", i)), fmt.Sprint("l", i), `"v":1`)
	}
	together(docs, 1)
	split(docs, 0)
	split(plain, 0)
	for i := range 8 {
		put(docs, fmt.Sprint("d", i), 2, "")
		put(plain, fmt.Sprint("p", i), 2, "")
	}
	remove(docs, feed.Key("d15"), "d15")
	remove(plain, feed.Key("p15"), "p15")
}

// second contains the writes after that.
func second(db *docstore.DB) {
	docs, plain := value(db.Container("docs")), value(db.Container("plain"))
	users, leases := value(db.Container("users")), value(db.Container("leases"))
	split(docs, 1)
	together(docs, 2)
	for i := range 4 {
		put(docs, fmt.Sprint("d", i), 3, "")
		put(plain, fmt.Sprint("p", i), 3, "")
	}
	remove(docs, feed.Key("d14"), "d14")
	remove(docs, feed.Key("d0"), "d0")
	remove(users, feed.Key("t", "u3"), "profile")
	user(users, 0, 2)
	write(leases, feed.Key("l0"), "l0", `"v":2`)
	parts := value(docs.Partitions(ctx))
	value(docs.Merge(ctx, parts[0].ID, parts[1].ID))
	put(docs, "d1", 4, "")
}

func main() {
	mode, dir := os.Args[1], os.Args[2]
	db := value(docstore.Open(dir, docstore.Options{}))
	if mode == "try" {
		docs := value(db.Container("docs"))
		put(docs, "d2", 5, "")
		put(docs, "tried", 1, "")
		must(db.Close())
		return
	}
	first(db)
	must(db.Close())
	db = value(docstore.Open(dir, docstore.Options{}))
	second(db)
	if mode == "close" {
		must(db.Close())
	}
}
