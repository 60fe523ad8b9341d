// Package deadletters stores the changes that a handler cannot handle. The types implement
// changefeed.FailurePolicy.DeadLetters.
//
//	letters, err := deadletters.Container(container, "mailer", orders) // of docstore or cosmos
//	letters, err := deadletters.File("mailer.ndjson", "mailer")
//	p, err := changefeed.New(orders, leases, handler, changefeed.Options{
//		OnFailure: changefeed.FailurePolicy{MaxAttempts: 5, DeadLetters: letters},
//	})
//
// [Container] keeps letters in an ordinary container, for all instances: whichever instance parks a change, every other
// instance can read the letter, and hold or redrive its key. [File] keeps letters in a file, which belongs to a single
// host: another host neither sees the letters nor continues the file. Use File if you have a single process, or if you
// hold no keys. [Func] passes letters to a function and cannot read them back.
//
// # Letters handled again
//
// [Redrive] makes the handler handle a letter again, and [Release] lets a held key go on. Both ask the owner of the
// key, so that the change stays in the order of the key. Both wait for the [Outcome]:
//
//	ctx, cancel := context.WithTimeout(ctx, time.Minute)
//	defer cancel()
//	o, err := deadletters.Redrive(ctx, orders, leases, letter.Change.PartitionKey, letter.ID)
//	switch {
//	case errors.Is(err, deadletters.ErrNotServed): // no instance runs, or none that has the letters; no instance serves it later
//	case err == nil && o.Result == deadletters.ResultFailed: // the handler has failed again: o.Cause
//	}
//
// # The form of a letter
//
// Container, file and the command changefeed dlq show a letter as the same JSON:
//
//	id, key        of the letter: key is the partition key, as a JSON array
//	version        of this form: 1; a letter of a later version is an [ErrNewer]
//	disposition    the reason: failed, poison, undecodable, crashed or held
//	cause, stack   the handler's last error; its goroutine's stack if it panicked
//	attempts       how often the handler had received the change
//	processor, instance, lease, range
//	source         the container that the unit reads, DATABASE/CONTAINER; only in a container
//	lsn, index     of the change: changes with the same lsn were committed together
//	op, item       the operation, and the id of its document
//	time           of the commit
//	failed, parked when the handler first failed, when the letter was written
//	etag, expired, previous_lsn
//	document       as in the feed, byte for byte; missing for a delete
//	previous       the previous version, if the feed has it
//
// If a document cannot stand in a line of JSON, because the document is not JSON, has line breaks or is nested too
// deeply, the letter has the document in base64, as document_raw. In a container, documents of more than 1 MB are
// compressed, gzip in base64, as document_gzip. A compressed form of more than 1 MB is stored in separate documents.
// The same holds for previous.
package deadletters

import (
	"context"

	"github.com/millrace/changefeed/feed"
)

// Func makes [feed.DeadLetters] from a function, for a sink that cannot be read back, such as an alert or a queue. You
// cannot redrive such letters, nor hold keys.
type Func func(ctx context.Context, l feed.DeadLetter) error

// Put calls f.
func (f Func) Put(ctx context.Context, l feed.DeadLetter) error { return f(ctx, l) }

var (
	_ feed.DeadLetters = Func(nil)
	_ feed.LetterBox   = (*ContainerBox)(nil)
	_ feed.LetterBox   = (*FileBox)(nil)
)
