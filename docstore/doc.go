// Package docstore is an embedded document store with a change feed: the semantics of an Azure Cosmos DB container in
// a directory.
//
// A [DB] is an open directory. A DB holds containers, each a [Container]. The partition key of a document places it
// in the container's key space. Physical partitions tile that space, and you can split and merge them while they are
// in use. Every write gets the next LSN (log sequence number) of the container. The change feed of a partition
// contains its documents in the order of their last writes. If the container has a retention, the feed can also show
// all versions and deletes.
//
// A container is a [feed.Source], with [feed.Waiter], [feed.Counter], [feed.Locator] and [feed.Sequencer], and a
// [feed.Committer]. [Leases] keeps the records of a processor in another container, as a [feed.LeaseStore]:
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
// A write is acknowledged when the disk has the data, unless you set [Options].NoSync. Concurrent writers share a
// flush, so many writers cost hardly more than a single writer. The store never shows a reader a change that a power
// loss could take back. Otherwise a position stored after that change would skip the change that later gets the same
// LSN.
//
// If a write to the disk fails, all reads and writes are refused with [ErrFailed], because nothing shows which data
// reached the disk. Close the store and open it again to find out. Until you close the failed store, the store changes
// no file and takes no processor time. If a read from the disk fails, only the caller of this read gets the error, and
// a later read tries the disk again.
//
// If the disk has less than 64 MB of free space (on a small disk, less than a sixteenth of its size), the store refuses
// writes with [ErrDiskFull]. Reads go on, and writes go on as soon as the disk has room. If the disk becomes full
// during a write, the write waits for room, and so do readers of its container. If the process has no free file
// descriptor, writers wait. The store recovers by itself if descriptors become free within 10 seconds.
//
// [DB.Health] says whether the store has failed or its disk is full, and how many writes wait; package
// metrics/servermetrics makes instruments of that.
//
// # Damage
//
// [Open] verifies the files before any change. If a file is missing, cut or altered, you get [ErrCorrupt] with the name
// of the file: from Open or, for the blocks of tables, from the read of the block. The end of the newest log is an
// exception after a kill or a power loss, because nothing shows how far it had reached: [DB.Recovery] reports how far
// the log reaches now. [DB.Check] reads and verifies everything. [Salvage] reads the readable rest of a damaged store.
//
// # Files
//
// Only the owner of a store can read and write its files. If files of earlier versions have permissions for others,
// Open removes these permissions. Open does not change the permissions of the directory. An empty store takes less
// than a megabyte. A store of less than a gigabyte is not compressed, because uncompressed feeds are read faster. In
// a larger store, tables are compressed when they are merged. The store frees the space of deleted data while you
// write to the store. 30 seconds after the last write, the store also frees the space of deleted containers, of
// containers without documents, and of the logs except 2 MB.
//
// # Caveats
//
// Only one process at a time can open a directory. Writes have the service's limits: 2 MB a document, 100 writes or 2
// MB a batch. A start time is compared in milliseconds; the service compares whole seconds. The time of a container
// never goes back. If the machine's clock is set back, the container's time goes on from the last commit; after a
// restart, the time while the store was closed is then not counted. Request charges are estimates, because the
// service's rules are not public. A token is valid only in its own container, and Read does not check this.
//
// # Memory
//
// A store takes [Options.CacheBytes], and about 15 MB for everything else. If many documents were replaced, a reader of
// [Snapshot.Documents] takes as many bytes again while it reads, one reader at a time. In a build with cgo, CacheBytes
// are outside the Go heap ([OffHeap]). If your process does little but read feeds, raise GOGC, for example to 400.
// Otherwise the garbage collector runs every few pages and takes a third of the time. In a build without cgo
// (CGO_ENABLED=0, or no C compiler), CacheBytes are in the heap. If GOGC is 400, the process may then grow to five
// times CacheBytes, unless you set GOMEMLIMIT or debug.SetMemoryLimit.
//
// # For servers
//
// [Snapshot], [LogicalPartition], [PageMemory], [Condition], [Write], [KeyOf] and some methods of [Container] and [DB]
// are for programs serving a store to others, as package cosmosrest does: they read one state, in pages of bounded
// memory, and write under conditions. An application rarely needs them.
//
// # Where to read on
//
// keys.go describes the byte layout, commit.go the path of a write, and read.go and move.go the reasons why no reader
// misses a change. Package internal/engine describes the files, and how the store reacts when a disk fails.
package docstore
