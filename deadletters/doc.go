// Package deadletters has places for the changes that a handler cannot handle: sinks for
// changefeed.FailurePolicy.DeadLetters.
//
//	letters, err := deadletters.Container(container, "mailer", orders) // of docstore or cosmos
//	letters, err := deadletters.File("mailer.ndjson", "mailer")
//	p, err := changefeed.New(orders, leases, handler, changefeed.Options{
//		OnFailure: changefeed.FailurePolicy{MaxAttempts: 5, DeadLetters: letters},
//	})
//
// [Container] keeps letters in an ordinary container, for the whole fleet: whatever
// instance parks a change, every other can read it, and hold or redrive its key.
// [File] keeps them in a file, which belongs to its host: another host neither sees what
// is in it nor goes on with it. Use it for one process, or where no key is held. [Func]
// hands letters to a function, and cannot give them back.
//
// # Letters handled again
//
// [Redrive] has a letter handled again, and [Release] lets a held key go on. Both ask the instance that owns the key, so
// that the change comes in order with its key, and wait for the [Outcome]:
//
//	ctx, cancel := context.WithTimeout(ctx, time.Minute)
//	defer cancel()
//	o, err := deadletters.Redrive(ctx, orders, leases, letter.Change.PartitionKey, letter.ID)
//	switch {
//	case errors.Is(err, deadletters.ErrNotServed): // no instance runs, or none that has the letters; it does nothing later
//	case err == nil && o.Result == deadletters.ResultFailed: // the handler has failed again: o.Cause
//	}
//
// # The form of a letter
//
// Container, file and the command changefeed dlq show a letter as the same JSON:
//
//	id, key        of the letter: key is the partition key, as a JSON array
//	disposition    why it is here: failed, poison, undecodable, crashed or held
//	cause, stack   the handler's last error; of the goroutine if it panicked
//	attempts       how often the handler had received the change
//	processor, instance, lease, range
//	source         the container that the unit reads, DATABASE/CONTAINER; only in a container
//	lsn, index     of the change: changes with one lsn were committed together
//	op, item       what happened, to the document with this id
//	time           of the commit
//	failed, parked when the handler first failed, when the letter was written
//	etag, expired, previous_lsn
//	document       as it was in the feed, byte for byte; none for a delete
//	previous       the version before, where the feed has it
//
// A document that cannot stand in a line of JSON as it is, because it is not JSON, has
// line breaks or is nested too deeply, is there in base64, as document_raw. In a container
// documents of more than 1 MB are compressed, gzip in base64, as document_gzip, and where that has
// more than 1 MB, too, it is in documents of its own. The same holds for previous.
package deadletters

import (
	"context"

	"github.com/millrace/changefeed/feed"
)

// Func is a function as [feed.DeadLetters], for a sink that cannot be read back,
// such as an alert or a queue. Letters in it cannot be redriven, and no key can be held.
type Func func(ctx context.Context, l feed.DeadLetter) error

// Put calls f.
func (f Func) Put(ctx context.Context, l feed.DeadLetter) error { return f(ctx, l) }

var (
	_ feed.DeadLetters = Func(nil)
	_ feed.LetterBox   = (*ContainerBox)(nil)
	_ feed.LetterBox   = (*FileBox)(nil)
)
