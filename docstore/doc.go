// Package docstore is an embedded document store with a change feed: the semantics of
// an Azure Cosmos DB container in a directory.
//
// A [DB] is an open directory; it holds containers, each a [Container]. A container has a partition key,
// whose values place each document in the key space, and physical partitions, which tile
// that space and can be split and merged while in use. Every write gets the next LSN of
// its container; the change feed of a partition is its documents in the order of their
// last writes or, while the container has a retention, all its versions and deletes.
//
// A container is a [changefeed.Source], with [changefeed.Waiter] and
// [changefeed.Counter], and a [changefeed.Committer]. [Leases] keeps the records of a
// processor in another container, as a [changefeed.LeaseStore]:
//
//	db, err := docstore.Open("data", docstore.Options{})
//	if err != nil {
//		return err
//	}
//	defer db.Close()
//	orders, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/customer"}})
//	…
//	leases, err := db.CreateContainer(ctx, docstore.ContainerSpec{
//		ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL),
//	})
//	…
//	store, err := docstore.NewLeases(ctx, leases, "billing", orders)
//	…
//	p, err := changefeed.New(orders, store, handler, changefeed.Options{Instance: "worker-1"})
//	…
//	_, err = orders.Upsert(ctx, []byte(`{"id":"1","customer":"ada","total":12}`))
//
// # Durability
//
// A write is acknowledged when it is on the disk, unless [Options].NoSync. Concurrent
// writers share a flush, so many of them cost hardly more than one. A reader is never
// shown what a power loss could take back. After an error of a write to disk the store
// refuses reads as well as writes ([ErrFailed]): opening it again shows what it has. When
// the disk is full, or the process has no file descriptor left, writers wait, and the
// store goes on by itself if that ends within 10 seconds.
//
// # Damage
//
// The files of a store are verified when it is opened, before anything is changed: one
// that is lost, cut or altered is [ErrCorrupt] with its name, from Open or, for the blocks of
// tables, from the read that meets it. After a kill or a power loss the end of the newest log
// is an exception: how far it had reached cannot be known, and [DB.Recovery] says how far it
// does. [DB.Check] reads everything; [Salvage] reads what is left of a damaged store.
//
// # Files
//
// What a store makes is for its owner only; files of earlier versions become so when the
// store is opened, a directory that was there stays as it is. An empty store takes less
// than a megabyte. The room of what has been deleted comes back while the store is
// written to, and that of deleted containers, of containers without documents, and of
// all but 2 MB of the logs, 30 seconds after the last write.
//
// # Caveats
//
// One process has a directory open at a time. The items of a write are limited as the
// service limits them: 2 MB a document, 100 writes or 2 MB a batch. Time starts compare
// milliseconds, where the service compares whole seconds. A container's time never goes back: where the machine's clock is set
// back, it goes on from the last commit, after a restart without the time that the store
// was closed. The service charges request units by rules of its own; those of
// this store and its server are simpler. A token is valid in the container that it came
// from, and not checked for that. Most memory of a store is outside the Go heap: a process
// that does little but read feeds should raise GOGC, to 400 perhaps, for else the garbage
// collector runs every few pages and takes a third of the time.
//
// keys.go has the byte layout, commit.go how a write comes about, read.go and move.go
// why no reader misses one.
package docstore
