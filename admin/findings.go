package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/sentence"
)

// Word names a kind of finding for programs: for alarms, and for changefeed leases list --fail-on. Later versions may
// have more.
type Word string

// The words of findings: see [Word.About].
const (
	WordHole    Word = "hole"
	WordOverlap Word = "overlap"
	WordBroken  Word = "broken"
	WordOutage  Word = "outage"
	WordFailing Word = "failing"
	WordSlow    Word = "slow"
	WordExpired Word = "expired"
	WordSilent  Word = "silent"
	WordForeign Word = "foreign"
	WordDefied  Word = "defied"
	WordPaused  Word = "paused"
	WordFree    Word = "free"
	WordRetired Word = "retired"
	WordLater   Word = "later"
	WordStopped Word = "stopped"
	WordHeld    Word = "held"
	WordAside   Word = "aside"
	WordUnknown Word = "unknown"
	WordDiffer  Word = "differ"
	WordIdle    Word = "idle"
	WordWait    Word = "wait"  // see [Listing.Waiting]
	WordLag     Word = "lag"   // see [Listing.Behind]
	WordClock   Word = "clock" // see [Listing.Skewed]
)

// Words returns the words of [Listing.Findings], the worst first.
func Words() (words []Word) {
	for _, c := range conditions {
		if !slices.Contains(words, c.word) {
			words = append(words, c.word)
		}
	}
	return words
}

// About explains a word of [Words], in a few words; empty for an unknown word.
func (w Word) About() string {
	for _, c := range conditions {
		if c.word == w {
			return c.about
		}
	}
	return ""
}

// Grade says how bad a finding is.
type Grade int

// The grades.
const (
	GradeWarning Grade = iota + 1 // for office hours
	GradeFailure                  // changes are not handled, or are handled twice
)

// Finding is a problem of the unit.
type Finding struct {
	Word  Word
	Grade Grade
	Kind  feed.Kind  // of the record; empty for a hole and for the unit as a whole
	ID    string     // of the record; empty for a hole and for the unit as a whole
	Token string     // of the record, such as a lease
	Owner string     // of the lease; empty if there is none
	Range feed.Range // of the lease or the hole; empty if there is none
	Text  string     // the problem, for people: "owner a is silent for 2m0s"
	Means string     // the same in general, also for several leases
	Next  string     // the next step
}

// about returns a finding about a lease.
func (l *Lease) about(text string) Finding {
	return Finding{Kind: feed.KindLease, ID: l.ID, Token: l.Token, Owner: l.Owner, Range: l.Range, Text: text}
}

// aboutRecord returns a finding about a record that is no lease.
func aboutRecord(r feed.Record, text string) Finding {
	return Finding{Kind: r.Kind, ID: r.ID, Token: r.Token, Range: r.Range, Text: text}
}

// Findings returns all problems, the worst first. A lease that is being split, cut or joined is silent, expired, free,
// stopped or paused as a live lease is, although its state is [StateSplitting]. The lag alone is no finding: see
// [Listing.Waiting] and [Listing.Behind].
func (l *Listing) Findings() (all []Finding) {
	works := l.IsAtWork()
	for _, c := range conditions {
		for _, f := range c.findIn(l) {
			f.Word, f.Grade, f.Means, f.Next = c.word, c.grade, c.means, c.next.of(works)
			if works && c.gradeAtWork != 0 {
				f.Grade = c.gradeAtWork
			}
			all = append(all, f)
		}
	}
	return all
}

// Waiting returns the leases whose oldest change has waited for longer than a time. Waiting does not find changes whose
// commit time is unknown: see [changefeed.Lag.Age].
func (l *Listing) Waiting(most time.Duration) (found []Finding) {
	for i := range l.Leases {
		lease := &l.Leases[i]
		if lease.Lag == nil {
			continue
		}
		age, known := lease.Lag.Age(l.At)
		if age <= most {
			continue
		}
		f := lease.about("the oldest change has waited " + sentence.Waited(age, known))
		f.Word, f.Grade, f.Means = WordWait, GradeWarning, "changes have waited for too long"
		f.Next = nextOfLag.of(l.IsAtWork())
		found = append(found, f)
	}
	return found
}

// Skewed returns the running instances whose clocks differ from that of the lease store by more than a time. Leases
// expire by the clock of the store, but Azure refuses a request that was signed 15 minutes ago or ahead.
func (l *Listing) Skewed(most time.Duration) (found []Finding) {
	for i := range l.Instances {
		in := &l.Instances[i]
		skew, known := in.Skew()
		if !known || in.Presence != Running || skew.Abs() <= most {
			continue
		}
		side := "behind"
		if skew < 0 {
			side = "ahead of"
		}
		found = append(found, Finding{
			Word: WordClock, Grade: GradeWarning, Kind: in.Kind, ID: in.ID, Token: in.Token, Owner: in.Owner,
			Text: fmt.Sprintf("the clock of %s is %s %s that of the lease store", sentence.OneLine(in.Owner),
				sentence.Duration(skew.Abs()), side),
			Means: "the clocks of instances are wrong", Next: "set the clock, as with NTP",
		})
	}
	return found
}

// Behind returns the leases with more changes after their positions than a number.
func (l *Listing) Behind(most int64) (found []Finding) {
	for i := range l.Leases {
		lease := &l.Leases[i]
		if lease.Lag == nil || lease.Lag.Pending <= most {
			continue
		}
		f := lease.about(markOf(lease.Lag) + sentence.Count(lease.Lag.Pending, "change") + " behind")
		f.Word, f.Grade, f.Means = WordLag, GradeWarning, "many changes wait"
		f.Next = nextOfLag.of(l.IsAtWork())
		found = append(found, f)
	}
	return found
}

// nextOfLag is the next step about waiting changes.
var nextOfLag = choice{
	"start an instance", "see whether the lag falls: else the handler is too slow, fails, or there are too few leases",
}

// choice is the next step: if no instance of the unit is at work, or if instances are.
type choice struct{ stopped, atWork string }

// of returns the text for a unit at work or not.
func (c choice) of(works bool) string {
	if works {
		return c.atWork
	}
	return c.stopped
}

// always returns the same text in both cases.
func always(text string) choice { return choice{text, text} }

// leaseIn finds a condition in the leases of a unit.
func (c *condition) leaseIn(l *Listing) (found []Finding) {
	for i := range l.Leases {
		if text, is := c.lease(&l.Leases[i], l); is {
			found = append(found, l.Leases[i].about(text))
		}
	}
	return found
}

// findIn finds a condition in a unit.
func (c *condition) findIn(l *Listing) (found []Finding) {
	if c.lease != nil {
		found = c.leaseIn(l)
	}
	if c.other != nil {
		found = append(found, c.other(l)...)
	}
	return found
}

// holesIn finds the keys without a lease.
func holesIn(l *Listing) (found []Finding) {
	for _, h := range l.Holes {
		found = append(found, Finding{Range: h.Range, Text: "no lease holds these keys"})
	}
	return found
}

// unreadIn finds the records other than leases that nobody can read.
func unreadIn(l *Listing) (found []Finding) {
	for _, r := range l.otherRecords() {
		if r.Err != nil {
			found = append(found, aboutRecord(r, fmt.Sprint(r.Err)))
		}
	}
	return found
}

// laterIn finds the valid records of kinds that a later version may know.
func laterIn(l *Listing) (found []Finding) {
	for _, d := range l.Documents {
		if d.Err == nil {
			found = append(found, aboutRecord(d.Record, strings.Join(d.Notes, "; ")))
		}
	}
	return found
}

// otherRecords returns the records that are no leases.
func (l *Listing) otherRecords() (all []feed.Record) {
	for _, i := range l.Instances {
		all = append(all, i.Record)
	}
	for _, q := range l.Requests {
		all = append(all, q.Record)
	}
	for _, d := range l.Documents {
		all = append(all, d.Record)
	}
	return all
}

// differencesIn finds that instances run different programs.
func differencesIn(l *Listing) []Finding {
	if running := l.Variants(); running.Differ() {
		return []Finding{{Text: fmt.Sprintf("instances differ: %v", running)}}
	}
	return nil
}

// idleIn finds instances without a lease.
func idleIn(l *Listing) []Finding {
	idle, running := l.Idle()
	if len(idle) == 0 {
		return nil
	}
	return []Finding{{Text: fmt.Sprintf("%d of %s idle: %s; stop some, split a partition, or cut leases finer", len(idle),
		sentence.Count(running, "instance"), sentence.FirstOf(idle))}}
}
