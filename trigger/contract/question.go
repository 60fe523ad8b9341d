package contract

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Questions of a program about the unit. The host's hello names the questions that the host answers.

// The kinds of questions. Each question is a message to the host with an id, and the answer is of the same kind and has
// this id.
const (
	KindStatus   Kind = "status"   // how far behind the unit is
	KindCaughtUp Kind = "caughtup" // wait until everything written so far is handled
)

// The abilities of a host, in its hello.
const (
	CanColumns  = "columns"  // a program that asks for columns gets the changes of batches in columns
	CanEvents   = "events"   // a program that asks for events is sent them
	CanStatus   = "status"   // the host answers status
	CanCaughtUp = "caughtup" // the host answers caughtup
)

// UnitStatus says how far behind a unit is, with all instances. An unknown value is nil, and never 0. The members are
// those of `changefeed leases -o json`.
type UnitStatus struct {
	Instances int        `json:"instances"` // that run
	Pending   *int64     `json:"pending"`   // changes after the positions of all leases
	Exact     bool       `json:"pending_exact"`
	Shared    bool       `json:"pending_shared"` // Pending is an upper bound
	Oldest    *float64   `json:"oldest_seconds"` // how long the oldest of them has waited
	Stuck     []string   `json:"stuck"`          // why nobody handles them: words of [feed.Stuck]
	Watermark *time.Time `json:"watermark"`      // everything committed before is handled
	Unknown   *string    `json:"unknown"`        // why Pending is not known

	Leases []UnitLease `json:"leases"`
}

// UnitLease is a lease in a [UnitStatus].
type UnitLease struct {
	Lease     string     `json:"lease"` // token
	Range     *string    `json:"range"`
	Owner     *string    `json:"owner"` // nil if the lease is free
	Epoch     *string    `json:"epoch"`
	Position  *string    `json:"position"`
	State     string     `json:"state"`
	Attempts  *int       `json:"attempts"`  // failures of the batch after the position
	Held      *int       `json:"held"`      // partition keys
	SetAside  *int       `json:"set_aside"` // partition keys
	Lag       *int64     `json:"lag"`       // changes after the position
	Exact     bool       `json:"lag_exact"`
	Shared    bool       `json:"lag_shared"`
	Waited    *float64   `json:"lag_seconds"` // how long the oldest of them has waited
	Stuck     []string   `json:"stuck"`
	Watermark *time.Time `json:"watermark"`
	Notes     []string   `json:"notes"` // remarks for the operator
}

// answer is the answer to a question.
type answer struct {
	Type   Kind        `json:"type"`
	ID     int64       `json:"id"`
	Status *UnitStatus `json:"status,omitempty"`
	Error  string      `json:"error,omitempty"`
	Code   string      `json:"code,omitempty"` // of an error: the word of [feed.CodeOf], timeout or failed
}

// maxQuestions is how many questions may wait for their answers.
const maxQuestions = 1000

// errNotInTime: the time that a program has given a question is over.
var errNotInTime = errors.New("not within the time that the program has given")

// abilities returns the abilities of a host with these options.
func (o *HostOptions) abilities() (can []string) {
	can = append(can, CanColumns)
	if o.Events {
		can = append(can, CanEvents)
	}
	if o.Status != nil {
		can = append(can, CanStatus)
	}
	if o.CaughtUp != nil {
		can = append(can, CanCaughtUp)
	}
	return can
}

// answerQuestion answers a question in a goroutine.
func (h *Host) answerQuestion(line []byte, m *toHost) error {
	isKnown := m.Type == KindStatus && h.opts.Status != nil || m.Type == KindCaughtUp && h.opts.CaughtUp != nil
	switch {
	case !isKnown:
		return breach(line, "the processor answers no %s: want only what its hello names in can", m.Type)
	case !(m.Seconds >= 0 && m.Seconds <= maxAfter.Seconds()):
		return breach(line, "seconds is %v: want seconds, from 0 to %v; 0 is no limit", m.Seconds, maxAfter.Seconds())
	case h.questions.Add(1) > maxQuestions:
		return breach(line, "more than %d questions wait for their answers: want fewer at once", maxQuestions)
	}
	kind, id, seconds := m.Type, m.ID, m.Seconds
	h.work.Go(func() {
		defer h.questions.Add(-1)
		ctx := h.ctx
		if seconds > 0 {
			limited, cancel := context.WithTimeoutCause(ctx, time.Duration(seconds*float64(time.Second)), errNotInTime)
			defer cancel()
			ctx = limited
		}
		a := answer{Type: kind, ID: id}
		err := h.findAnswer(ctx, &a)
		if h.ctx.Err() != nil { // the program knows that no answer comes
			return
		}
		if err != nil {
			a.Status, a.Error, a.Code = nil, cutText(err.Error()), feed.CodeOf(err)
			switch {
			case errors.Is(err, errNotInTime):
				a.Code = "timeout"
			case a.Code == "":
				a.Code = "failed"
			}
		}
		h.lines.sendLine(encode(a), nil)
	})
	return nil
}

// findAnswer asks the processor. findAnswer measures one status at a time, because each status costs requests.
func (h *Host) findAnswer(ctx context.Context, a *answer) error {
	if a.Type == KindCaughtUp {
		return h.opts.CaughtUp(ctx)
	}
	select {
	case h.measuring <- struct{}{}:
		defer func() { <-h.measuring }()
	case <-ctx.Done():
		return fmt.Errorf("wait for the status before: %w", context.Cause(ctx))
	}
	status, err := h.opts.Status(ctx)
	if err != nil {
		return err
	}
	a.Status = &status
	return nil
}
