package changefeed

import (
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"
)

// LogHooks are hooks that write to a logger: errors as errors, leases that come and go
// as info, batches as debug.
//
// Errors of one kind are one line a minute, for however many leases, so that an outage
// does not fill the log; the next line counts what was left out as repeated. Those of
// the handler are of one kind if they differ only in words that have digits in them.
// Those of the source, the lease store and the balancer are of one kind if they are the
// same sentinel of this package or, being none, have the same cause; but what
// somebody must mend is written for each lease: [ErrHole], [ErrOverlap], [ErrBadLease],
// [ErrHandlerStuck]. In any minute there are at most 20 lines of errors; the next one
// counts those for which there was no room as unwritten.
func LogHooks(log *slog.Logger) Hooks {
	folded := fold{kinds: map[string]*told{}}
	return Hooks{
		Ready:    func() { log.Info("change feed processor ready") },
		Acquired: func(l Lease) { log.Info("lease acquired", "lease", l.Token, "position", positionOf(l)) },
		Released: func(l Lease, why Reason) { log.Info("lease released", "lease", l.Token, "reason", string(why)) },
		BatchDone: func(d BatchDone) {
			log.Debug("batch done", "lease", d.Batch.LeaseToken, "changes", len(d.Batch.Changes),
				"attempt", d.Batch.Attempt, "duration", d.Duration, "err", d.Err)
		},
		Round: func(r Round) {
			log.Debug("round", "leases", r.Leases, "instances", r.Instances, "owned", r.Owned,
				"taken", r.Taken, "given", r.Given, "stolen", r.Stolen)
		},
		Error: func(err *Error) {
			counts, ok := folded.admit(kindOf(err), err.Lease, time.Now())
			if !ok {
				return
			}
			attrs := append([]any{"origin", string(err.Origin), "lease", err.Lease, "err", err.Err}, counts...)
			if panicked, ok := errors.AsType[*PanicError](err); ok {
				attrs = append(attrs, "stack", string(panicked.Stack))
			}
			log.Error("change feed processor", attrs...)
		},
	}
}

// Bounds of a log of errors.
const (
	foldPeriod = time.Minute
	mostLines  = 20 // in a foldPeriod
	keptKinds  = time.Hour
)

// A fold decides which errors are written.
type fold struct {
	mu        sync.Mutex
	kinds     map[string]*told
	lines     [mostLines]time.Time // when the newest lines were written, in turn
	next      int                  // of lines to be used: the oldest
	unwritten int                  // errors for which there was no room
}

// told is a kind of error that was written.
type told struct {
	at       time.Time
	repeated int             // since then
	leases   map[string]bool // that it was repeated for
}

// admit decides whether an error is written, and gives the counts that its line has of
// those that were not.
func (f *fold) admit(kind, lease string, now time.Time) (counts []any, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.kinds[kind]
	if old != nil && now.Sub(old.at) < foldPeriod {
		old.repeated++
		old.leases[lease] = true
		return nil, false
	}
	if now.Sub(f.lines[f.next]) < foldPeriod {
		f.unwritten++
		return nil, false
	}
	if old != nil && old.repeated > 0 {
		counts = append(counts, "repeated", old.repeated, "leases", len(old.leases))
	}
	if f.unwritten > 0 {
		counts = append(counts, "unwritten", f.unwritten)
	}
	maps.DeleteFunc(f.kinds, func(_ string, t *told) bool { return now.Sub(t.at) >= keptKinds })
	f.kinds[kind] = &told{at: now, leases: map[string]bool{}}
	f.lines[f.next], f.unwritten = now, 0
	f.next = (f.next + 1) % mostLines
	return counts, true
}

// lasting are errors that somebody must mend, each for itself.
var lasting = []error{ErrHole, ErrOverlap, ErrBadLease, ErrHandlerStuck}

// answers are errors that a store repeats for all leases, whatever it is asked.
var answers = []error{
	ErrThrottled, ErrForbidden, ErrNotFound, ErrTooOld, ErrGone, ErrPrecondition, ErrConflict, ErrBadRequest,
	ErrModeChanged, ErrStartIgnored,
}

// kindOf is the same for errors that are written once a minute. It does not hang on the
// texts of errors alone, because each answer of an account has an id of its own, and the
// names of the failed requests differ.
func kindOf(err *Error) string {
	origin := string(err.Origin) + ": "
	if is(err, lasting) != nil {
		return origin + err.Lease + ": " + err.Err.Error()
	}
	if err.Origin == OriginHandler {
		return origin + wordsOf(err.Err.Error())
	}
	if known := is(err, answers); known != nil {
		return origin + known.Error()
	}
	return origin + wordsOf(root(err).Error())
}

// is finds the one of some sentinels that an error is.
func is(err error, sentinels []error) error {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s
		}
	}
	return nil
}

// root is the innermost cause of an error; of several it is the first.
func root(err error) error {
	for {
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			if e.Unwrap() == nil {
				return err
			}
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			if len(e.Unwrap()) == 0 {
				return err
			}
			err = e.Unwrap()[0]
		default:
			return err
		}
	}
}

// wordsOf is a text without the words that have digits in them: ids, addresses, times.
func wordsOf(text string) string {
	var b strings.Builder
	for word := range strings.FieldsSeq(text) {
		if !strings.ContainsAny(word, "0123456789") {
			b.WriteString(word + " ")
		}
	}
	return b.String()
}

// positionOf is where an acquired lease is. One that another processor has made may not say,
// and then begins where the unit does, not now.
func positionOf(l Lease) string {
	if l.unplaced() {
		return "none yet"
	}
	return l.Position.String()
}
