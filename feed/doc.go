// Package feed has the words of a change feed: what a container gives, what a lease store keeps, and what a handler
// receives. It runs nothing. The processor is package changefeed; stores, triggers and tests share these words with it.
// Options, FailurePolicy, Hooks, Status, Processor, Items and Pull in this documentation are those of package changefeed.
//
// # What a container gives
//
//   - A [Source] is a monitored container. Its key space is tiled by partitions ([Partition]). Each [Range] of it has an ordered feed
//     of changes, which is read from a [Position] in pages.
//   - A [Start] says where to begin without a position: [FromBeginning], [FromNow], [FromTime] or [FromAgo].
//   - A [Change] is a new version of an item, or its delete if the [Mode] is [AllVersionsAndDeletes].
//   - A [PartitionKey] is the logical partition of an item. Changes of one partition key are in commit order. [Key] makes
//     one.
//   - A source may be able to do more: a [Waiter] holds a read until there are changes, a [Counter] counts pending
//     changes, a [Locator] finds the range of a partition key, and a [Sequencer] compares continuation tokens.
//
// # What is kept about a unit
//
//   - A [LeaseStore] keeps the records ([Record]) of one deployment unit: its leases, its hosts, its lock and its requests. If the
//     store is a [Follower], all instances see a write at once.
//   - A [Lease] says who reads a range, and up to where.
//
// # What a handler receives, and returns
//
//   - A [Handler] receives each [Batch] of a lease. It returns nil when the batch is done; any other error brings the
//     batch again.
//   - A [Failure] is an error that names the changes that have failed. [Poison] marks an error that no retry can mend.
//   - A [DeadLetter] is a change that was parked, and [DeadLetters] are where it is kept.
//
// # What is written
//
//   - A [Committer] writes items, several of one partition key in one transaction.
//
// # What a processor reports
//
//   - Hooks receive events: reads and writes ([ReadDone], [WaitDone], [StoreDone]), calls of the handler ([BatchDone]), a
//     [Round] of the balancer, an [Outage], a [KeyEvent], a [Redriven] letter, a [NewUnit].
//   - An [Error] is a failure with its [Origin]. A [LeaseStatus] is how far an instance has come with a lease.
//
// # Errors
//
// A source or a store returns an error that wraps one of the errors of this package, so that its caller can decide without
// knowing the store: retry after a pause ([ErrThrottled]), give up ([ErrBadRequest], [ErrForbidden]), read again
// ([ErrConflict], [ErrPrecondition]), look at the partitions again ([ErrGone]), or do without what is missing ([ErrNotFound])
// or no longer kept ([ErrTooOld]).
//
// If a processor cannot begin or go on, Run returns one of [ErrModeChanged], [ErrStartIgnored], [ErrNoStart],
// [ErrLeasesGone] and [ErrSourceGone]. All else is reported to Hooks.Error, and the processor goes on. The context of a handler
// ends with [ErrLeaseLost], [ErrStopped] or [ErrHandlerTimeout]: read it with [context.Cause].
//
// Package changefeedtest has suites that prove a Source, a LeaseStore, a Committer and a LetterBox.
package feed
