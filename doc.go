// Package changefeed is a change feed processor for Azure Cosmos DB, and for every store that can show changes range by
// range. Many cooperating instances read the feed of a monitored container. They hand batches of changes to your code
// at least once and in order, and store their progress in leases.
//
// # Nouns
//
//   - A [feed.Source] is the monitored container. Ranges tile its key space, and each range has an ordered feed of
//     changes.
//   - A [feed.Lease] says who reads a range, and up to which position. A [feed.LeaseStore] keeps the [feed.Record]s of
//     one deployment unit: all instances that share the work under one processor name.
//   - A [feed.Handler] is your code. It receives each [feed.Batch] of a lease, one at a time or, with
//     [Options.Concurrency], several of different partition keys at once.
//   - [feed.DeadLetters] keep the changes that a handler cannot handle: see [FailurePolicy.MaxAttempts], and package
//     deadletters.
//   - A [Processor] ties them together; each [Processor.Run] is an instance.
//   - A [feed.Committer] writes items, several of a partition key in a transaction.
//   - [Pull] reads a feed without leases; [Estimate] measures the lag of a unit, and [CaughtUp] waits until the unit
//     has handled all earlier writes.
//
// # Use
//
// The embedded store of package docstore is a Source, a LeaseStore and a Committer. Package cosmos is the same for
// Azure Cosmos DB, and for the server that speaks the protocol of Azure over a docstore (package cosmosrest, changefeed
// serve). Over the embedded store:
//
//	leases, err := docstore.NewLeases(ctx, leaseContainer, "mailer", orders)
//	if err != nil { … }
//	p, err := changefeed.New(orders, leases,
//		changefeed.Items(func(ctx context.Context, b *feed.Batch, items []changefeed.Item[Order]) error {
//			for _, order := range items {
//				if err := mail(ctx, order.Value); err != nil {
//					return err // the batch comes again
//				}
//			}
//			return nil // the batch is done and checkpointed
//		}),
//		changefeed.Options{Start: feed.FromBeginning()})
//	if err != nil { … }
//	err = p.Run(ctx) // until ctx ends
//
// # Promises
//
// At least once, from the very first change: a lease stores its start before an instance first reads its range. In
// order: changes of one partition key arrive in commit order, and a later change never arrives while an earlier one is
// unfinished. One owner: a handler's context ends with [feed.ErrLeaseLost] before another instance can begin, whatever
// the clocks of the hosts say. Progress never moves back. Every key has a lease: holes are repaired or reported.
// [Hooks.Error] reports failures, and [Processor.Status] describes a running instance.
//
// # Caveats
//
//   - At least once is not once: after a crash the last two batches may be redelivered. Make your handlers idempotent,
//     and test them with changefeedtest.Torture.
//   - By default a failed batch is retried for ever, with pauses. The lease makes no progress meanwhile, and each
//     failure is reported. To park bad changes, set [FailurePolicy.MaxAttempts] and [FailurePolicy.DeadLetters]: then
//     other keys go on. To find the failing change in a batch, the processor calls your handler more often than
//     MaxAttempts.
//   - Changes of different partition keys have no order.
//   - In latest-version mode you do not see deletes, nor the versions between two reads.
//   - A handler that ignores its context cannot be stopped. The processor reports the handler and lets the lease
//     expire.
package changefeed
