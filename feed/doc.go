// Package feed defines the terms of a change feed: what a container offers, the records that a lease store keeps, and
// the batches that a handler receives. Package feed runs nothing. The processor is package changefeed; stores, triggers
// and tests share these terms with it. In this documentation Options, FailurePolicy, Hooks, Status, Processor, Items
// and Pull are those of package changefeed.
//
// # The monitored container
//
//   - A [Source] is a monitored container. Partitions ([Partition]) tile its key space. Each [Range] has an ordered
//     feed of changes, which you read in pages from a [Position].
//   - A [Start] says where to begin without a position: [FromBeginning], [FromNow], [FromTime] or [FromAgo].
//   - A [Change] is a new version of an item, or its delete if the [Mode] is [AllVersionsAndDeletes].
//   - A [PartitionKey] is the logical partition of an item. Changes of a partition key are in commit order. [Key] makes
//     a PartitionKey.
//   - A source may have further abilities: a [Waiter] holds a read until there are changes, a [Counter] counts pending
//     changes, a [Locator] finds the range of a partition key, and a [Sequencer] compares continuation tokens.
//
// # The records of a unit
//
//   - A [LeaseStore] keeps the records ([Record]) of one deployment unit: its leases, its hosts, its lock and its
//     requests. If the store is a [Follower], all instances see a write at once.
//   - A [Lease] says who reads a range, and up to which position.
//
// # The handler
//
//   - A [Handler] receives each [Batch] of a lease. It returns nil when the batch is done; after any other result the
//     batch is redelivered.
//   - A [Failure] is an error that names the failed changes. [Poison] marks an error that a retry cannot mend.
//   - A [DeadLetter] is a parked change, and [DeadLetters] keep the letters.
//
// # Writes
//
//   - A [Committer] writes items, several of one partition key in one transaction.
//
// # Reports of a processor
//
//   - Hooks receive events: reads and writes ([ReadDone], [WaitDone], [StoreDone]), calls of the handler ([BatchDone]),
//     a [Round] of the balancer, an [Outage], a [KeyEvent], a [Redriven] letter, a [NewUnit], a [Difference] of
//     instances, a [SlowBatch], a [TakeOver].
//   - An [Error] is a failure with its [Origin]. A [LeaseStatus] describes the progress of an instance with a lease.
//
// # Errors
//
// A source or a store returns an error that wraps one of the errors of this package. So the caller can decide without
// knowing the store: retry after a pause ([ErrThrottled]), give up ([ErrBadRequest], [ErrForbidden]), read again
// ([ErrConflict], [ErrPrecondition]), list the partitions again ([ErrGone]), or go on without data that is missing
// ([ErrNotFound]) or no longer retained ([ErrTooOld]).
//
// If a processor cannot begin or go on, Run returns one of [ErrModeChanged], [ErrStartIgnored], [ErrNoStart],
// [ErrLeasesGone] and [ErrSourceGone]. All other errors are reported to Hooks.Error, and the processor goes on. The
// context of a handler ends with [ErrLeaseLost], [ErrStopped] or [ErrHandlerTimeout]: read the cause with
// [context.Cause].
//
// Package changefeedtest has suites that prove a Source, a LeaseStore, a Committer and a LetterBox.
package feed
