package feed

import (
	"context"
	"time"
)

// Hooks are called with the events of a processor. Unset hooks do nothing, except that Error, Parked, Outage, Begun,
// Differing, Paused, Skipped and Slow write warnings and errors to slog.Default as LogHooks of package changefeed do.
// So no change fails, leaves the feed, hangs or is skipped in silence. The processor calls hooks from many goroutines,
// so they must return soon; a hook that panics ends the program. JoinHooks of that package joins several.
//
// The context of a hook has the values of the context of the processor's run, such as a trace. The context does not
// end, so a hook can still report events during a stop.
type Hooks struct {
	// Ready: the unit's leases exist; every change committed from now on will be delivered.
	Ready func(ctx context.Context)
	// Begun: the unit is new, and this instance has made its leases. It comes before Ready.
	Begun func(ctx context.Context, u NewUnit)
	// Acquired: this instance begins to work on a lease.
	Acquired func(ctx context.Context, l Lease)
	// TakenOver: this instance has taken leases whose owner has shown no life for too long.
	TakenOver func(ctx context.Context, t TakeOver)
	// Released: this instance has stopped working on a lease.
	Released func(ctx context.Context, l Lease, why Reason)
	// BatchDone: the handler has returned, with or without success.
	BatchDone func(ctx context.Context, d BatchDone)
	// Slow: a batch has been in the handler for much longer than usual, or has left the handler after that.
	Slow func(ctx context.Context, b SlowBatch)
	// ReadDone: the read of a page has succeeded or failed.
	ReadDone func(ctx context.Context, d ReadDone)
	// WaitDone: a wait for changes of the source is over.
	WaitDone func(ctx context.Context, d WaitDone)
	// StoreDone: the write of a held lease has succeeded or failed.
	StoreDone func(ctx context.Context, d StoreDone)
	// Round: the balancer has compared the leases with the instances.
	Round func(ctx context.Context, r Round)
	// Parked: a change is now among the dead letters.
	Parked func(ctx context.Context, l DeadLetter)
	// Outage: an outage was detected, or is over.
	Outage func(ctx context.Context, o Outage)
	// Differing: live instances of the unit run different handlers, programs or options, or they no longer do.
	Differing func(ctx context.Context, d Difference)
	// Paused: an operator has paused keys of the unit, or the pause is over. A new instance reports existing pauses.
	Paused func(ctx context.Context, p Pause)
	// Skipped: this instance has obeyed an operator who has changes skipped. If no instance has the lease at that time,
	// the operator writes the lease, and no hook is called: the history of the unit names these changes.
	Skipped func(ctx context.Context, s Skip)
	// Key: a partition key was set aside, has caught up, is held, or was released.
	Key func(ctx context.Context, k KeyEvent)
	// Redriven: the handler has received a letter again, at the request of an operator or after an outage.
	Redriven func(ctx context.Context, r Redriven)
	// Error: something failed, and the processor goes on.
	Error func(ctx context.Context, err *Error)
}

// And returns hooks calling those of h, then those of next. Hooks unset in both do nothing.
func (h Hooks) And(next Hooks) Hooks {
	return Hooks{
		Ready: func(ctx context.Context) {
			for _, hook := range []func(context.Context){h.Ready, next.Ready} {
				if hook != nil {
					hook(ctx)
				}
			}
		},
		Begun:    both(h.Begun, next.Begun),
		Acquired: both(h.Acquired, next.Acquired),
		Released: func(ctx context.Context, lease Lease, why Reason) {
			for _, hook := range []func(context.Context, Lease, Reason){h.Released, next.Released} {
				if hook != nil {
					hook(ctx, lease, why)
				}
			}
		},
		BatchDone: both(h.BatchDone, next.BatchDone),
		Slow:      both(h.Slow, next.Slow),
		TakenOver: both(h.TakenOver, next.TakenOver),
		ReadDone:  both(h.ReadDone, next.ReadDone),
		WaitDone:  both(h.WaitDone, next.WaitDone),
		StoreDone: both(h.StoreDone, next.StoreDone),
		Round:     both(h.Round, next.Round),
		Parked:    both(h.Parked, next.Parked),
		Outage:    both(h.Outage, next.Outage),
		Differing: both(h.Differing, next.Differing),
		Paused:    both(h.Paused, next.Paused),
		Skipped:   both(h.Skipped, next.Skipped),
		Key:       both(h.Key, next.Key),
		Redriven:  both(h.Redriven, next.Redriven),
		Error:     both(h.Error, next.Error),
	}
}

// both returns a hook calling two, either of which may be unset.
func both[E any](first, second func(context.Context, E)) func(context.Context, E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, event E) {
		first(ctx, event)
		second(ctx, event)
	}
}

// BatchDone describes a call of the handler.
type BatchDone struct {
	Batch    *Batch
	Duration time.Duration
	Err      error // nil if the batch is done
}

// SlowBatch is a batch in the handler for longer than 30 s and ten times the usual time, or for half of HandlerTimeout:
// the handler may hang.
type SlowBatch struct {
	Lease   string // token of the lease
	Changes int
	Since   time.Time     // when the handler was called
	Ended   time.Time     // when the handler has returned; zero while the batch is in the handler
	Usual   time.Duration // average of the last calls for the lease that have succeeded; 0 if there is none
}

// TakeOver names the leases that this instance has taken from another instance, which was killed, has lost its
// connection or was frozen. Changes handled by the other instance since its last checkpoint are redelivered.
type TakeOver struct {
	Instance string // name of the earlier owner
	Leases   []string
	Silent   time.Duration // since the last write of the earlier owner
}

// ReadDone describes a read of a lease's range.
type ReadDone struct {
	Lease    string // token of the lease
	Changes  int
	Charge   float64 // in request units, 0 if unknown
	Duration time.Duration
	Err      error
}

// WaitDone describes a wait for new changes, if the source is a [Waiter]. A wait has no charge.
type WaitDone struct {
	Lease    string // token of the lease
	Duration time.Duration
	Err      error
}

// StoreDone describes a write of a held lease.
type StoreDone struct {
	Lease    string  // token of the lease
	Renewal  bool    // true for a timed renewal, false for a checkpoint
	Charge   float64 // in request units, 0 if unknown, as after an error
	Duration time.Duration
	Err      error
}

// Round describes a round of the balancer.
type Round struct {
	Leases    int  // of the unit
	Instances int  // live instances, this instance included
	Owned     int  // by this instance when the round began, including leases that a stuck handler keeps
	Taken     int  // by this instance, because they were free, expired or handed over
	Given     int  // to other instances
	Stolen    int  // from owners that do not answer
	Unowned   int  // leases that no instance may own, because all instances have as many as Options.MaxLeases
	Listed    bool // true if all records were listed, false if changes were followed
}

// Outage is a time in which at least three changes fail, and fewer partition keys succeed. During an outage a change is
// parked only if it has failed for FailurePolicy.MaxAge, and the handler is called only now and then to see whether the
// handler has recovered. Each instance recognizes outages for itself, over all its leases. An outage ends when such a
// call succeeds; then all failed changes begin anew.
type Outage struct {
	Since   time.Time // when the outage was detected
	Ended   time.Time // zero while the outage lasts
	Changes int       // changes that had used up their attempts when the outage was detected
}

// KeyEvent says that the changes of a partition key are treated differently from now on.
type KeyEvent struct {
	Lease  string // token of the lease
	Key    PartitionKey
	Became KeyState
}

// KeyState is how the changes of a partition key are treated.
type KeyState string

// The unusual states of a partition key, and their ends.
const (
	KeySetAside KeyState = "set aside" // later changes of the key are read again by key; see FailurePolicy.MaxSetAside
	KeyCaughtUp KeyState = "caught up" // the key was set aside, and its changes arrive from the feed again
	KeyHeld     KeyState = "held"      // changes of the key are parked; see FailurePolicy.HoldKeys
	KeyReleased KeyState = "released"  // the key was held, and its changes go to the handler again
)

// Redriven describes a letter received again by the handler.
type Redriven struct {
	Letter DeadLetter
	Recall bool  // no operator has requested this: the change was parked just before an outage was detected
	Err    error // why the handler has failed again; nil if the letter is done and removed
}

// NewUnit describes a deployment unit whose leases were just made.
type NewUnit struct {
	Start  Start // where the unit begins
	Mode   Mode  // mode of the changes
	Leases int
	// Passed is the number of present changes before Start, which the unit skips. Passed is nil if the number is
	// unknown: the source is no [Counter], the mode is all versions and deletes, or the count took longer than 10 s.
	Passed *int64
}

// Pause is a time in which an operator has paused keys of a unit: no instance delivers their changes.
type Pause struct {
	Range  Range     // of effective partition keys
	By     string    // who; empty if that is unknown
	Reason string    // why; empty if that is unknown
	Since  time.Time // by the clock of the lease store
	Ended  time.Time // zero while the pause lasts
}

// Skip says which changes an operator has skipped: the handler never gets them. If the answer of the lease store to the
// write is lost, a skip can be carried out without this event.
type Skip struct {
	Lease   string // token of the lease
	Changes []SkippedChange
	By      string // who; empty if that is unknown
	Reason  string // why; empty if that is unknown
}

// SkippedChange names a change that is skipped.
type SkippedChange struct {
	ID  string // of the item
	Key PartitionKey
	LSN int64
}
