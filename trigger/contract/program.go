package contract

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/changeline"
)

// ProgramOptions are the optional settings of a program.
type ProgramOptions struct {
	Client    string        // name and version of the program's library, for logs
	Batches   int           // how many batches the program handles at once; the default is 1
	Heartbeat time.Duration // time between heartbeats; 0 is none

	// Event is called with each event of the processor. Event must return soon, because no message is read meanwhile.
	// Nil asks for no events.
	Event func(Event)

	// Unit, if set, asks the processor about its unit while Serve runs.
	Unit *Unit

	// Token gives the processor a token of a scope: see `changefeed run --token-from-program`. Nil offers none.
	Token func(ctx context.Context, scope string) (Token, error)
}

// ErrHostGone: the host has closed the connection without a stop before, usually because the host has died.
var ErrHostGone = errors.New("the processor has closed the connection")

// program is the program's end of a connection.
type program struct {
	handler feed.Handler
	opts    ProgramOptions
	lines   *writer
	ctx     context.Context

	mu      sync.Mutex
	calls   sync.WaitGroup                    // of the handler, and for tokens; none begins when isOver is set
	isOver  bool                              // Serve ends
	cancels map[int64]context.CancelCauseFunc // of the batches in the handler
	confirm map[int64][]chan error            // checkpoints whose outcomes are awaited, by batch
}

// Serve is the program's end of a connection: Serve reads from r, writes to w, and calls the handler for each batch,
// until the host closes the connection or ctx ends. If the host has said stop before, Serve returns nil. Serve returns
// when all calls have ended.
func Serve(ctx context.Context, r io.Reader, w io.Writer, handler feed.Handler, o ProgramOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &program{
		handler: handler, opts: o, ctx: ctx, cancels: map[int64]context.CancelCauseFunc{},
		confirm: map[int64][]chan error{},
	}
	p.lines = newWriter()
	var writing sync.WaitGroup
	writing.Go(func() { p.lines.writeLines(struct{ io.Writer }{w}, func() { cancel(ErrHostGone) }) })
	defer writing.Wait() // the process may exit when all answers are written
	defer p.lines.endLines()
	p.lines.sendLine(encode(toHost{Type: KindHello, programHello: programHello{
		Version: Version, Client: o.Client, Batches: cmp.Or(o.Batches, 1),
		Heartbeat: o.Heartbeat.Seconds(), Events: o.Event != nil, Tokens: o.Token != nil,
	}}), nil)
	defer o.Unit.leave()
	defer p.calls.Wait()
	if o.Heartbeat > 0 {
		writing.Go(func() { p.sendHeartbeats(o.Heartbeat) })
	}
	ended := make(chan error, 1)
	go func() { ended <- p.readMessages(bufio.NewReader(r)) }() // ends with r
	select {
	case err := <-ended:
		cause := feed.ErrStopped
		if err != nil { // the host is dead: another instance takes the leases
			cause = feed.ErrLeaseLost
		}
		p.endCalls(cause)
		cancel(err)
		return err
	case <-ctx.Done():
		p.endCalls(context.Cause(ctx))
		return context.Cause(ctx)
	}
}

// sendHeartbeats sends heartbeats until the connection ends.
func (p *program) sendHeartbeats(period time.Duration) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.lines.sendLine(encode(toHost{Type: KindHeartbeat}), nil)
		case <-p.ctx.Done():
			return
		}
	}
}

// fromHost is every message of the host.
type fromHost struct {
	batchHead
	Version int               `json:"version"`
	Can     []string          `json:"can"`
	Cause   Cause             `json:"cause"`
	Error   string            `json:"error"`
	Code    string            `json:"code"`
	Scope   string            `json:"scope"`
	Status  *UnitStatus       `json:"status"`
	Changes []json.RawMessage `json:"changes"`
}

// readMessages reads the messages of the host until the connection ends.
func (p *program) readMessages(r *bufio.Reader) error {
	isStopping, isGreeted := false, false
	for {
		line, err := readWhole(r)
		if err != nil && isStopping {
			return nil
		} else if err != nil {
			return ErrHostGone
		}
		var m fromHost
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("read a message of the processor: %w", err)
		}
		if !isGreeted && (m.Type != KindHello || m.Version != Version) {
			return fmt.Errorf("the processor says %.100q first: want a hello of version %d", line, Version)
		}
		if m.Type.isEvent() {
			p.hearEvent(line)
			continue
		}
		switch m.Type {
		case KindHello:
			isGreeted = true
			p.unlessOver(func() { p.opts.Unit.join(p.lines, m.Can) })
		case KindStatus, KindCaughtUp:
			p.opts.Unit.takeAnswer(&m)
		case KindToken:
			p.beginCall(func() { p.giveToken(m.ID, m.Scope) })
		case KindBatch:
			if err := p.beginBatch(&m); err != nil {
				return err
			}
		case KindCancel:
			p.cancelBatch(m.ID, m.Cause.errorOf())
		case KindCheckpointed:
			p.endCheckpoint(&m)
		case KindStop:
			isStopping = true
		case KindError:
			return errors.New(m.Error)
		}
	}
}

// readWhole returns the next line, of any length.
func readWhole(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return line[:len(line)-1], nil
}

// beginBatch calls the handler for a batch.
func (p *program) beginBatch(m *fromHost) error {
	r, err := feed.ParseRange(m.Range)
	if err != nil {
		return fmt.Errorf("read a batch: %w", err)
	}
	b := &feed.Batch{
		LeaseToken: m.Lease, Range: r, Instance: m.Instance, Epoch: m.Epoch, Attempt: m.Attempt, Cut: m.Cut,
		Redriven: m.Redriven, Session: m.Session, Charge: m.Charge, Head: m.Head,
		Changes: make([]feed.Change, len(m.Changes)),
	}
	if m.Position != "" {
		b.Position = feed.At(m.Position)
	}
	for i, text := range m.Changes {
		if b.Changes[i], err = changeline.Parse(text); err != nil {
			return fmt.Errorf("read a batch: %w", err)
		}
	}
	if id := m.ID; m.Manual {
		b.OnCheckpoint(func(ctx context.Context) error { return p.askForCheckpoint(ctx, id) })
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	p.mu.Lock()
	p.cancels[m.ID] = cancel
	p.mu.Unlock()
	id, n := m.ID, len(b.Changes)
	p.beginCall(func() {
		err := p.handler.Handle(ctx, b)
		isCanceled := ctx.Err() != nil
		p.cancelBatch(id, nil)
		p.lines.sendLine(encode(answerOf(id, err, isCanceled, n)), nil)
	})
	return nil
}

// cancelBatch ends the context of a batch, if the handler still has the batch.
func (p *program) cancelBatch(id int64, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end := p.cancels[id]; end != nil {
		delete(p.cancels, id)
		end(cause)
	}
}

// unlessOver calls a function, unless Serve ends: later messages are not taken any more.
func (p *program) unlessOver(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isOver {
		f()
	}
}

// beginCall begins a call of the user's code, for which Serve waits, unless Serve ends.
func (p *program) beginCall(call func()) { p.unlessOver(func() { p.calls.Go(call) }) }

// endCalls ends the context of all batches. No other call begins.
func (p *program) endCalls(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isOver = true
	for _, end := range p.cancels {
		end(cause)
	}
}

// answerOf returns the answer for the handler's error for a batch of n changes.
func answerOf(id int64, err error, isCanceled bool, n int) toHost {
	m := toHost{Type: KindFailed, ID: id}
	f, isPart := errors.AsType[*feed.Failure](err)
	switch {
	case err == nil:
		m.Type = KindDone
		return m
	case isCanceled && !isPart:
		m.Type = KindReleased
		return m
	case !isPart:
		m.Error, m.Poison = err.Error(), feed.IsPoison(err)
		return m
	}
	m.Outage, m.After, m.Poison = f.Outage, min(max(0, f.After), maxAfter).Seconds(), feed.IsPoison(err)
	if wrong := misfit(f, n); wrong != nil {
		m.Error = fmt.Sprintf("%v (the whole batch has failed: %v)", err, wrong)
		return m
	}
	if f.Err != nil {
		m.Error = f.Err.Error()
	}
	if m.Done = f.Done; len(f.Items) > 0 {
		m.Done = 0
	}
	for _, i := range slices.Sorted(maps.Keys(f.Items)) {
		item := failedItem{Index: &i, Untried: f.Items[i] == feed.ErrUntried, Poison: feed.IsPoison(f.Items[i])}
		if f.Items[i] != nil && !item.Untried {
			item.Error = f.Items[i].Error()
		}
		m.Items = append(m.Items, item)
	}
	return m
}

// misfit says why a failure is none of a batch of n changes, which the host would take for a broken contract; nil if
// the failure fits.
func misfit(f *feed.Failure, n int) error {
	if len(f.Items) == 0 && (f.Done < 0 || f.Done >= max(1, n)) {
		return fmt.Errorf("Failure.Done is %d, want 0 to %d", f.Done, n-1)
	}
	for _, i := range slices.Sorted(maps.Keys(f.Items)) {
		if i < 0 || i >= n {
			return fmt.Errorf("Failure.Items names change %d, want 0 to %d", i, n-1)
		}
	}
	return nil
}
