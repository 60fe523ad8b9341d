// Package docstore is an embedded document store with a change feed: the semantics of
// an Azure Cosmos DB container in a directory.
//
// A [DB] is an open directory and holds containers, each a [Container]. The partition
// key of a document places it in the container's key space. Physical partitions tile
// that space and can be split and merged while in use. Every write gets the next LSN of
// the container; the change feed of a partition is its documents in the order of their
// last writes or, while the container has a retention, all versions and deletes.
//
// A container is a [feed.Source], with [feed.Waiter], [feed.Counter], [feed.Locator] and [feed.Sequencer], and a [feed.Committer]. [Leases] keeps the records of a
// processor in another container, as a [feed.LeaseStore]:
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
// A write is acknowledged when the disk has it, unless [Options].NoSync is set.
// Concurrent writers share a flush, so many of them cost hardly more than a single
// writer. A reader is never shown a change that a power loss could take back, because a
// stored position after that change would then skip its successor. After an error of a
// write to disk the store refuses reads as well as writes ([ErrFailed]), because what
// reached the disk is unknown: open the store again to find out. Until it is closed the
// failed store changes no file and takes no processor time. The error of a read is its
// caller's alone, and a later read finds the disk as it is then. When the disk has less
// than 64 MB left, or a sixteenth of a small one, writes are refused ([ErrDiskFull]), reads
// go on, and so do writes as soon as there is room. A write that finds the disk full only
// when it is under way waits for room, and so do readers of its container. When the process
// has no file descriptor left, writers wait, and the store goes on by itself if that ends
// within 10 seconds.
//
// # Damage
//
// [Open] verifies the files before any change. A file that is lost, cut or altered is
// [ErrCorrupt] with its name, from Open or, for the blocks of tables, from the read
// that meets them. The end of the newest log is an exception after a kill or a power
// loss, because nothing shows how far that log had reached: [DB.Recovery] reports how
// far it reaches now. [DB.Check] reads everything; [Salvage] reads the rest of a
// damaged store.
//
// # Files
//
// The files of a store are readable and writable by their owner only. Open takes the
// permissions of others from files of earlier versions, and leaves the directory alone.
// An empty store takes less than a megabyte. A store of less than a gigabyte is not
// compressed, because its feeds are then read faster; the tables of a larger one are
// compressed when they are merged. Deleted data gives back its room while the
// store is written to. Deleted containers, containers without documents, and all but 2
// MB of the logs give back theirs 30 seconds after the last write.
//
// # Caveats
//
// A directory is open in one process at a time. Writes are limited as in the service: 2
// MB a document, 100 writes or 2 MB a batch. Time starts compare milliseconds, where
// the service compares whole seconds. The time of a container never goes back: if the
// machine's clock is set back, the container's time goes on from the last commit; a
// restart then leaves out the time for which the store was closed. Request charges are
// a sketch, since the service's rules are not public. A token is valid in its own
// container only, and Read does not check that.
//
// # Memory
//
// A store takes [Options.CacheBytes], and about 15 MB for all else. In a build with cgo
// CacheBytes are outside the Go heap ([OffHeap]), so a process that does little but read
// feeds should raise GOGC, to 400 perhaps: else the garbage collector runs every few
// pages and takes a third of the time. In a build without cgo (CGO_ENABLED=0, or no C
// compiler) they are in the heap: with a GOGC of 400 the process may then grow to five
// times CacheBytes, unless GOMEMLIMIT or debug.SetMemoryLimit bounds it.
//
// # Where to read on
//
// keys.go has the byte layout, commit.go the way of a write, and read.go and move.go
// the reasons why no reader misses a change. Package internal/engine has the files and
// what is done when a disk fails them.
package docstore
