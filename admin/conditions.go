package admin

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/sentence"
)

// condition is a possible problem of a unit. Only the table of conditions says how bad a state is and which step helps:
// findings, explanations, changefeed leases and changefeed doctor read this table.
type condition struct {
	word        Word
	grade       Grade
	gradeAtWork Grade // if instances are at work; 0 is grade
	about       string
	lease       func(l *Lease, of *Listing) (text string, is bool) // nil if the condition is not about a lease
	other       func(l *Listing) []Finding                         // nil if the condition is about leases only
	means       string
	next        choice
	advice      choice // for an explanation of a lease, in sentences; {owner} is the owner of the lease
}

// manyAttempts is from how many failed attempts on a batch is a failure.
const manyAttempts = 5

// inState returns a condition about the owner of a lease: see [Listing.standing].
func inState(state State, text string) func(*Lease, *Listing) (string, bool) {
	return func(l *Lease, of *Listing) (string, bool) { return text, of.standing(l) == state }
}

// aboutRetired describes a lease that nobody needs.
const aboutRetired = "a lease is left that was replaced, or created too late"

// adviceToStart is the advice if no instance of the unit runs.
const adviceToStart = "Start an instance of the unit."

// adviceOnHole is the advice about keys without a lease.
var adviceOnHole = choice{
	"Start an instance: it makes a lease there, from where the unit began.",
	"Wait: the instances make a lease when an earlier owner must have stopped, within minutes.",
}

// adviceOnFailures is the advice about failing changes.
var adviceOnFailures = always("Look at the log of the owner for the error of the handler. With --max-attempts and " +
	"--dead-letters the processor finds a change that can never be handled, and parks it. changefeed leases skip gives " +
	"changes up: name one with --change, because otherwise the whole batch is skipped, with its good changes.")

// conditions are the conditions, the worst first.
var conditions = []condition{
	{
		word: WordHole, grade: GradeFailure, about: "no lease holds some keys", other: holesIn,
		means: "no lease covers these keys, so nobody handles their changes",
		next: choice{
			"start an instance, which makes the missing leases",
			"instances mend that within a minute: if the hole stays, read their log",
		},
		advice: adviceOnHole,
	},
	{
		word: WordOverlap, grade: GradeFailure, about: "two leases hold the same keys",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return "another lease holds keys of this one", len(l.Overlaps) > 0
		},
		means: "they cover the same keys, whose changes are handled twice",
		next:  always("if they still overlap in a minute, delete the one that is behind: see changefeed leases"),
		advice: choice{
			"Start an instance, which removes the lease that is not needed.",
			"Wait for some rounds: the instances remove the lease that is not needed.",
		},
	},
	{
		word: WordBroken, grade: GradeFailure, about: "a document is no valid lease",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return fmt.Sprint(l.Err), l.Err != nil && !errors.Is(l.Err, feed.ErrForeignLease)
		},
		means: "the document is no valid lease, so nobody works on it",
		next:  always("see changefeed leases, and delete the document: instances make the lease again"),
		advice: always("Look at the document with changefeed get; if no other processor needs it, delete it, and the " +
			"instances make a lease."),
	},
	{
		word: WordOutage, grade: GradeFailure, about: "an owner sees an outage",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return "outage since " + l.Outage.Format(time.RFC3339), !l.Outage.IsZero()
		},
		means: "the handler lacks what it needs, so nothing is handled",
		next:  always("mend what the handler needs, such as a database: the log of the owner names the error"),
		advice: always("Mend the system that the handler needs, such as a database: the log of the owner names the " +
			"error. Nothing is parked meanwhile."),
	},
	{
		word: WordUnknown, grade: GradeFailure, about: "the lag of a lease is not known",
		lease: func(l *Lease, _ *Listing) (string, bool) { return fmt.Sprint(l.Unknown), l.isLost() },
		means: "the changes after the position cannot be read",
		next:  always("look at the position with changefeed leases explain, and reset the lease"),
		advice: always("The changes after the position cannot be read, as the facts say: give the lease another position " +
			"with changefeed leases reset --to START."),
	},
	{
		word: WordFailing, grade: GradeFailure, about: "a batch has failed",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return attemptsText(l), l.Attempts > 0 && !l.Outage.IsZero()
		},
		means: "the batch has failed because of the outage",
		next:  always("mend the outage: nothing is parked meanwhile"),
	},
	{
		word: WordFailing, grade: GradeFailure, about: "a batch has failed",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return attemptsText(l), l.Attempts >= manyAttempts && l.Outage.IsZero()
		},
		means: fmt.Sprintf("the batch has failed %d times or more; without concurrency all other keys wait", manyAttempts),
		next:  always("read the log of the owner; with dead letters a processor goes on: see changefeed help run"),

		advice: adviceOnFailures,
	},
	{
		word: WordSlow, grade: GradeWarning, about: "a batch is in the handler for much longer than usual",
		lease: func(l *Lease, of *Listing) (string, bool) {
			return "a batch has been in the handler for " + sentence.Duration(l.InHand(of.At)), len(l.Slow) > 0
		},
		means:  "a batch is in the handler for much longer than usual",
		next:   always("see what the handler of the owner waits for: it may hang"),
		advice: always("Look what the handler of the owner waits for: it may hang."),
	},
	{
		word: WordExpired, grade: GradeFailure, gradeAtWork: GradeWarning, about: "the owner of a lease is silent",
		lease: func(l *Lease, of *Listing) (string, bool) {
			return fmt.Sprintf("owner %s is silent for %s", sentence.OneLine(l.Owner), sentence.Duration(l.Silent)),
				of.standing(l) == StateExpired
		},
		means: "its owner has been silent for too long",
		next: choice{
			"start an instance: nobody else works on these leases",
			"the instances take over: if they do not within a minute, read their log",
		},
		advice: choice{adviceToStart, "Wait for a round of the instances, which take the lease (13 s by default)."},
	},
	{
		word: WordSilent, grade: GradeWarning, about: "the owner of a lease is late, and may hang",
		lease:  inState(StateSilent, "its owner is late"),
		means:  "its owner is late",
		next:   always("see whether the owner hangs, and whether it reaches the lease store"),
		advice: always("Look whether {owner} runs, and whether it reaches the lease store."),
	},
	{
		word: WordFailing, grade: GradeWarning, about: "a batch has failed",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return attemptsText(l), 0 < l.Attempts && l.Attempts < manyAttempts && l.Outage.IsZero()
		},
		means: "the batch has failed, and is retried",
		next:  always("read the log of the owner"), advice: adviceOnFailures,
	},
	{
		word: WordForeign, grade: GradeWarning, about: "a lease belongs to a processor of another make",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return "owned by a processor of another make", l.isForeign()
		},
		means:  "owned by a processor of another make",
		next:   always("make sure that the other processors of the unit have the same handler"),
		advice: always("Stop the other kind of processor before you pause or reset the unit."),
	},
	{
		word: WordPaused, grade: GradeWarning, about: "a lease is paused",
		lease: func(l *Lease, of *Listing) (string, bool) {
			return "the lease is paused" + pausedBy(l.Pause), of.standing(l) == StatePaused
		},
		means:  "paused",
		next:   always("changefeed leases resume ends that"),
		advice: always("When the reason is gone, end the pause with changefeed leases resume."),
	},
	{
		word: WordFree, grade: GradeWarning, about: "nobody has a lease, though instances run",
		lease: inState(StateFree, "nobody has the lease"), means: "free, and instances run",
		next: always("if it stays free, read the log of an instance"),
		advice: always("Wait for a round of the instances (13 s by default). If nobody takes the lease, look whether " +
			"their limit of leases is reached, and at their logs."),
	},
	{
		word: WordRetired, grade: GradeWarning, about: aboutRetired,
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return "others have replaced it", l.State == StateRetired && !l.isLate()
		},
		means: "replaced by others, and left",
		next:  always("remove it with changefeed leases gc"), advice: always("Remove it with changefeed leases gc."),
	},
	{
		word: WordRetired, grade: GradeWarning, about: aboutRetired,
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return "it was created too late, and counts as deleted", l.State == StateRetired && l.isLate()
		},
		means: "created too late, so it counts as deleted",
		next: choice{
			"start an instance, which removes the document or uses it",
			"instances remove the document or use it: leave it to them",
		},
		advice: choice{
			"Start an instance, which removes the lease, or uses it if no other lease has its keys.",
			"Wait for some rounds: the instances remove the lease, or use it if no other lease has its keys.",
		},
	},
	{
		word: WordDefied, grade: GradeWarning, about: "an owner has not obeyed a pause yet",
		lease: func(l *Lease, _ *Listing) (string, bool) { return "its owner has not obeyed the pause", l.IsDefied },
		means: "paused, and the owner has not obeyed yet",
		next: always("look whether the owner runs and belongs to this version: whoever takes the lease after it " +
			"obeys"),
		advice: always("{owner} has not obeyed the pause yet: look whether it runs. Whoever takes the lease after it " +
			"obeys."),
	},
	{
		word: WordBroken, grade: GradeWarning, about: "a document is no valid lease", other: unreadIn,
		means: "a document of the unit that cannot be read",
		next:  always("see changefeed leases: a later version may have written it"),
	},
	{
		word: WordLater, grade: GradeWarning, about: "a later version may have written a document", other: laterIn,
		means: "a document of the unit that cannot be read",
		next:  always("see changefeed leases: a later version may have written it"),
	},
	{
		word: WordStopped, grade: GradeWarning, about: "no instance of the unit runs",
		lease: func(l *Lease, of *Listing) (string, bool) {
			state := of.standing(l)
			return "no instance runs", state == StateStopped || l.IsAbandoned || state == StatePaused && !of.IsAtWork()
		},
		means:  "no instance of the unit runs",
		next:   always("start an instance"),
		advice: choice{adviceToStart, ""},
	},
	{
		word: WordHeld, grade: GradeWarning, about: "keys are held behind a dead letter",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return fmt.Sprintf("%s held", sentence.Count(len(l.Held), "key")), len(l.Held) > 0
		},
		means: "changes of keys wait behind a dead letter",
		next: always("changefeed dlq retry --all handles their letters again, changefeed dlq release --key KEY frees a " +
			"key without that"),
		advice: always("Look at the parked changes with changefeed dlq list, and hand them over again with changefeed dlq " +
			"retry --all."),
	},
	{
		word: WordAside, grade: GradeWarning, about: "keys are set aside because they fail",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return fmt.Sprintf("%s set aside", sentence.Count(len(l.SetAside), "key")), len(l.SetAside) > 0
		},
		means: "changes of keys fail, and are retried apart",
		next:  always("read the log of the owners"),
	},
	{
		word: WordUnknown, grade: GradeWarning, about: "the lag of a lease is not known",
		lease: func(l *Lease, _ *Listing) (string, bool) {
			return "the lag is not known", l.Lag == nil && l.Record.State != feed.StateRetired && !l.isLost()
		},
		means: "the lag is not known",
		next:  always("mend the leases first: see changefeed leases"),
	},
	{
		word: WordDiffer, grade: GradeWarning,
		about: "instances of the unit run different handlers, programs or options", other: differencesIn,
		means: "instances differ",
		next: always("after an upgrade, stop the old ones; if two handlers share the name by mistake, give one another " +
			"name: each change goes to one of them"),
	},
	{
		word: WordIdle, grade: GradeWarning, about: "an instance has no lease, because there are too few", other: idleIn,
		means: "instances have no lease",
		next:  always("stop them, split the partition, or cut leases finer"),
	},
}

// attemptsText says how often the batch in hand has failed.
func attemptsText(l *Lease) string {
	return "the batch in hand has failed " + sentence.Count(l.Attempts, "time")
}
