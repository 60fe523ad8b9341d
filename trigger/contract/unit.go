package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Unit asks the processor of a program about the unit: give the Unit to [Serve] in [ProgramOptions]. The zero value
// is ready, and belongs to one call of Serve at a time. Before the hello of the processor, questions wait.
type Unit struct {
	mu      sync.Mutex
	lines   *writer // nil before the hello, and after the end
	can     []string
	lastID  int64
	waiting map[int64]chan<- *fromHost
	begun   chan struct{} // closed at the hello, or at the end
	ended   bool
}

// ErrUnasked: the processor is of an earlier version, which does not answer this question.
var ErrUnasked = errors.New("the processor does not answer this question")

// An AnswerError says why the processor has no answer.
type AnswerError struct {
	Text string
	Code string // the word of [feed.CodeOf], timeout or failed
}

// Error returns the text.
func (e *AnswerError) Error() string { return e.Text }

// Status asks how far behind the unit is.
func (u *Unit) Status(ctx context.Context) (*UnitStatus, error) {
	m, err := u.ask(ctx, KindStatus, CanStatus)
	if err != nil {
		return nil, err
	}
	return m.Status, nil
}

// CaughtUp waits until the unit has handled all writes before the call. A deadline of ctx goes to the processor, whose
// error then names the lease that is behind.
func (u *Unit) CaughtUp(ctx context.Context) error {
	_, err := u.ask(ctx, KindCaughtUp, CanCaughtUp)
	return err
}

// ask asks a question and waits for the answer.
func (u *Unit) ask(ctx context.Context, kind Kind, ability string) (*fromHost, error) {
	begun := u.hello()
	select {
	case <-begun:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the hello of the processor: %w", context.Cause(ctx))
	}
	question := toHost{Type: kind}
	if deadline, ok := ctx.Deadline(); ok {
		// The processor knows which lease is behind, so the processor's answer should come first.
		question.Seconds = max(time.Until(deadline)*9/10, time.Millisecond).Seconds()
	}
	said := make(chan *fromHost, 1)
	if err := u.send(&question, ability, said); err != nil {
		return nil, err
	}
	select {
	case m, ok := <-said:
		switch {
		case !ok:
			return nil, ErrHostGone
		case m.Error != "":
			return nil, &AnswerError{m.Error, m.Code}
		}
		return m, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the answer of the processor: %w", context.Cause(ctx))
	}
}

// hello returns a channel that is closed at the hello of the processor.
func (u *Unit) hello() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.begun == nil {
		u.begun = make(chan struct{})
	}
	return u.begun
}

// send sends a question.
func (u *Unit) send(question *toHost, ability string, said chan<- *fromHost) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.ended:
		return ErrHostGone
	case !slices.Contains(u.can, ability):
		return fmt.Errorf("%w (%s)", ErrUnasked, ability)
	}
	u.lastID++
	question.ID = u.lastID
	u.waiting[u.lastID] = said
	u.lines.sendLine(encode(question), nil)
	return nil
}

// join notes the hello of the processor.
func (u *Unit) join(lines *writer, can []string) {
	if u == nil {
		return
	}
	begun := u.hello()
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-begun: // of a call of Serve before
	default:
		close(u.begun)
	}
	u.lines, u.can, u.waiting, u.ended = lines, can, map[int64]chan<- *fromHost{}, false
}

// leave ends all waiting questions: no answer comes any more.
func (u *Unit) leave() {
	if u == nil {
		return
	}
	begun := u.hello()
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-begun:
	default:
		close(u.begun)
	}
	for _, said := range u.waiting {
		close(said)
	}
	u.lines, u.waiting, u.ended = nil, nil, true
}

// takeAnswer takes an answer.
func (u *Unit) takeAnswer(m *fromHost) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if said := u.waiting[m.ID]; said != nil {
		delete(u.waiting, m.ID)
		said <- new(*m)
	}
}

// hearEvent hands an event to the program.
func (p *program) hearEvent(line []byte) {
	var e Event
	if p.opts.Event != nil && json.Unmarshal(line, &e) == nil { // the line was decoded once already
		p.opts.Event(e)
	}
}

// giveToken answers a request for a token.
func (p *program) giveToken(id int64, scope string) {
	m := toHost{Type: KindToken, ID: id}
	if p.opts.Token == nil {
		m.Error = "this program gives no tokens"
	} else if token, err := p.opts.Token(p.ctx, scope); err != nil {
		m.Error = err.Error()
	} else {
		m.Token, m.Expires = token.Text, new(token.Expires.UTC())
	}
	p.lines.sendLine(encode(m), nil)
}
