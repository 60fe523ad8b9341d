package contracttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/program"
)

// testCase is what a program has to do.
type testCase struct {
	name     string
	settings func(*program.WorkerOptions) // nil changes nothing
	run      func(context.Context, *run) error
}

// cases are all cases.
var cases = slices.Concat(batchCases, abilityCases)

// odd is a text with all that encodings get wrong.
const odd = "a\"b\\c/\b\f\n\r\t \u0000\u001f\u007f ü ß € 𝄞 😀 \u2028\u2029 e\u0301 <&>"

var batchCases = []testCase{
	{name: "handles a batch of one change", run: func(ctx context.Context, r *run) error {
		return wantDone(r.handle(ctx, `{}`))
	}},
	{name: "handles a batch of 10,000 changes", run: func(ctx context.Context, r *run) error {
		return wantDone(r.handle(ctx, slices.Repeat([]string{`{"do":"pass","text":"of a document"}`}, 10_000)...))
	}},
	{name: "handles a change without a document", run: func(ctx context.Context, r *run) error {
		b := r.batch("-FF", `{}`)
		b.Changes[0].Body, b.Changes[0].Op = nil, feed.OpDelete
		b.Changes[0].Previous = []byte(`{"do":"poison","error":"this is the previous version"}`)
		return wantDone(r.handleBatch(ctx, b))
	}},
	{name: "fails a batch with the text of the error", run: func(ctx context.Context, r *run) error {
		return wantText(r.handle(ctx, `{}`, document("fail all", odd)), odd, false)
	}},
	{name: "answers with a poison error", run: func(ctx context.Context, r *run) error {
		return wantText(r.handle(ctx, document("poison all", odd)), odd, true)
	}},
	{name: "names the changes that have failed", run: namesFailedChanges},
	{name: "says how many changes are done", run: func(ctx context.Context, r *run) error {
		f, err := wantFailure(r.handle(ctx, `{}`, `{}`, document("stop", "no more"), `{}`))
		if err != nil || f.Done != 2 || len(f.Items) > 0 || f.Outage || causeText(f) != "no more" {
			return cmpError(err, "the first 2 changes done, then \"no more\"", f)
		}
		return nil
	}},
	{name: "reports an outage and how long to wait", run: func(ctx context.Context, r *run) error {
		f, err := wantFailure(r.handle(ctx, `{}`, `{"do":"outage","error":"down","seconds":1.5}`))
		if err != nil || f.Done != 1 || !f.Outage || f.After != 1500*time.Millisecond || causeText(f) != "down" {
			return cmpError(err, "an outage after 1 change, for 1.5s, \"down\"", f)
		}
		return nil
	}},
	{name: "keeps the order of a lease", run: keepsOrder},
	{name: "handles batches of several leases at once", run: func(ctx context.Context, r *run) error {
		return r.together(ctx, `{"do":"meet","n":2}`, `{"do":"meet","n":2}`)
	}},
	{name: "gives a batch up when its lease is lost", run: func(ctx context.Context, r *run) error {
		return r.givesUp(ctx, feed.ErrLeaseLost)
	}},
	{name: "gives a batch up when it takes too long", run: func(ctx context.Context, r *run) error {
		return r.givesUp(ctx, feed.ErrHandlerTimeout)
	}},
	{name: "goes on with other batches when one is canceled", run: func(ctx context.Context, r *run) error {
		return r.together(ctx, `{"do":"wait"}`, `{"do":"sleep","seconds":0.3}`)
	}},
	{name: "handles a document of 4 MB", run: func(ctx context.Context, r *run) error {
		long := strings.Repeat(odd, 4<<20/len(odd))
		text, _ := json.Marshal(map[string]any{"do": "fail all", "error": "read", "text": long})
		return wantText(r.handle(ctx, string(text)), "read", false)
	}},
	{name: "reads messages that come slowly", settings: slowly, run: func(ctx context.Context, r *run) error {
		return wantText(r.handle(ctx, `{}`, document("fail all", odd)), odd, false)
	}},
	{name: "ignores members that it does not know", settings: withMore, run: func(ctx context.Context, r *run) error {
		return wantDone(r.handle(ctx, `{}`, `{}`))
	}},
	{name: "prints without harm", run: func(ctx context.Context, r *run) error {
		if runtime.GOOS == "windows" {
			return skip("the standard output is the pipe of the contract on Windows")
		}
		return wantDone(r.handle(ctx, document("print", `{"type":"done","id":7}`), `{}`))
	}},
	{name: "is started again when it has died", run: isStartedAgain},
	{name: "confirms by hand", settings: func(o *program.WorkerOptions) { o.Manual = true }, run: confirms},
	{name: "finishes its batches when the processor stops", run: func(ctx context.Context, r *run) error {
		outcome := make(chan error, 1)
		r.calls.Go(func() { outcome <- r.handle(context.WithoutCancel(ctx), `{"do":"sleep","seconds":0.5}`) })
		if err := r.awaitRunning(ctx); err != nil {
			return err
		}
		r.stop()
		return wantDone(<-outcome)
	}},
	{name: "ends when the processor has died", settings: dies, run: func(ctx context.Context, r *run) error {
		return wantDone(r.handle(ctx, `{}`)) // and the end of the pipe follows, without a stop
	}},
	{name: "beats while its handler works, if it has announced heartbeats", run: func(ctx context.Context, r *run) error {
		if err := wantDone(r.handle(ctx, `{"do":"sleep","seconds":4}`)); err != nil {
			return err
		}
		if slices.Contains(r.logged.messages(), "the program says nothing: is its event loop blocked?") {
			return errors.New("it was silent for three of its heartbeats")
		}
		return nil
	}},
}

// document returns a document that says what to do and the text of the error.
func document(do, text string) string {
	d, _ := json.Marshal(map[string]string{"do": do, "error": text})
	return string(d)
}

// wantDone returns an error unless a batch is done.
func wantDone(err error) error {
	if err != nil {
		return fmt.Errorf("the batch has failed: %w; want done", err)
	}
	return nil
}

// wantText returns an error unless a batch has failed as a whole, with a text.
func wantText(err error, text string, isPoison bool) error {
	if _, isPart := errors.AsType[*feed.Failure](err); err == nil || isPart || err.Error() != text {
		return fmt.Errorf("got the outcome %s, want failed with the error %q", quoteOutcome(err), text)
	}
	if feed.IsPoison(err) != isPoison {
		return fmt.Errorf("poison is %v, want %v", feed.IsPoison(err), isPoison)
	}
	return nil
}

// quoteOutcome quotes an outcome.
func quoteOutcome(err error) string {
	if err == nil {
		return "done"
	}
	return fmt.Sprintf("%q", err)
}

// wantFailure returns the failure of a batch, or an error if there is none.
func wantFailure(err error) (*feed.Failure, error) {
	f, ok := errors.AsType[*feed.Failure](err)
	if !ok {
		return &feed.Failure{}, fmt.Errorf("got the outcome %s, want a failure of a part", quoteOutcome(err))
	}
	return f, nil
}

// cmpError returns the error, or one that says what was wanted.
func cmpError(err error, want string, f *feed.Failure) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("got done %d, %d failed changes, outage %v, after %v, error %q; want %s",
		f.Done, len(f.Items), f.Outage, f.After, causeText(f), want)
}

func causeText(f *feed.Failure) string {
	if f.Err == nil {
		return ""
	}
	return f.Err.Error()
}

func namesFailedChanges(ctx context.Context, r *run) error {
	f, err := wantFailure(r.handle(ctx, `{}`, document("fail", "first"), `{}`, document("poison", odd), `{}`))
	if err != nil {
		return err
	}
	if f.Done != 0 || len(f.Items) != 2 || f.Items[1] == nil || f.Items[3] == nil {
		return fmt.Errorf("got done %d and failed changes with the index %v: want those with the index [1 3], from 0", f.Done,
			slices.Sorted(maps.Keys(f.Items)))
	}
	if err := wantText(f.Items[1], "first", false); err != nil {
		return fmt.Errorf("change 1: %w", err)
	}
	if err := wantText(f.Items[3], odd, true); err != nil {
		return fmt.Errorf("change 3: %w", err)
	}
	return nil
}

// keepsOrder hands numbers over in batches of several leases at once. The program fails if a number is not the next of
// its lease.
func keepsOrder(ctx context.Context, r *run) error {
	outcomes := make(chan error, 3)
	for lease := range cap(outcomes) {
		r.calls.Go(func() {
			for n := 1; n <= 300; n += 3 {
				var documents []string
				for i := range 3 {
					documents = append(documents, fmt.Sprintf(`{"do":"count","key":"lease %d","n":%d}`, lease, n+i))
				}
				if err := r.handleBatch(ctx, r.batch(fmt.Sprint(lease), documents...)); err != nil {
					outcomes <- wantDone(err)
					return
				}
			}
			outcomes <- nil
		})
	}
	var all error
	for range cap(outcomes) {
		all = errors.Join(all, <-outcomes)
	}
	return all
}

// together hands two documents over in batches of two leases. A batch that waits is canceled.
func (r *run) together(ctx context.Context, documents ...string) error {
	if err := wantDone(r.handle(ctx, `{}`)); err != nil {
		return err
	}
	if r.Batches() < len(documents) {
		return skip(fmt.Sprintf("its hello has room for %d batch at once", r.Batches()))
	}
	outcomes := make(chan error, len(documents))
	for i, text := range documents {
		r.calls.Go(func() {
			ctx := ctx
			if strings.Contains(text, "wait") {
				canceled, cancel := context.WithCancelCause(ctx)
				defer time.AfterFunc(100*time.Millisecond, func() { cancel(feed.ErrLeaseLost) }).Stop()
				ctx = canceled
			}
			err := r.handleBatch(ctx, r.batch(fmt.Sprint(i), text))
			if errors.Is(context.Cause(ctx), feed.ErrLeaseLost) && errors.Is(err, feed.ErrLeaseLost) {
				err = nil
			}
			outcomes <- err
		})
	}
	var all error
	for range documents {
		all = errors.Join(all, wantDone(<-outcomes))
	}
	return all
}

// givesUp cancels a batch that waits for the cancel, and hands another one over.
func (r *run) givesUp(ctx context.Context, cause error) error {
	canceled, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outcome := make(chan error, 1)
	r.calls.Go(func() { outcome <- r.Handle(canceled, r.batch("-FF", `{"do":"wait"}`)) })
	if err := r.awaitRunning(ctx); err != nil {
		return err
	}
	time.AfterFunc(200*time.Millisecond, func() { cancel(cause) })
	began := time.Now()
	if err := <-outcome; !errors.Is(err, cause) {
		return fmt.Errorf("got the outcome %s, want released", quoteOutcome(err))
	}
	if took := time.Since(began); took >= r.o.Patience {
		return fmt.Errorf("it has given the batch up after %v, when it was killed", took.Round(time.Millisecond))
	}
	return wantDone(r.handle(ctx, `{}`))
}

// awaitRunning waits until the program has a batch.
func (r *run) awaitRunning(ctx context.Context) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(r.o.Patience); len(r.Running()) == 0; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if time.Now().After(deadline) {
			return errors.New("it has not started in time")
		}
	}
	return nil
}

func isStartedAgain(ctx context.Context, r *run) error {
	err := r.handle(ctx, `{"do":"exit","code":3}`)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		return fmt.Errorf("got the outcome %s of a program that was to exit with 3", quoteOutcome(err))
	}
	return wantDone(r.handle(ctx, `{}`))
}

func confirms(ctx context.Context, r *run) error {
	var confirmed atomic.Int32
	for refused, want := range map[error]int32{nil: 1, feed.ErrLeaseLost: 0} {
		confirmed.Store(0)
		b := r.batch("-FF", `{}`, `{"do":"checkpoint"}`)
		b.OnCheckpoint(func(context.Context) error {
			if refused == nil {
				confirmed.Add(1)
			}
			return refused
		})
		err := r.handleBatch(ctx, b)
		if confirmed.Load() != want {
			return fmt.Errorf("the batch was confirmed %d times, want %d", confirmed.Load(), want)
		}
		if refused == nil && err != nil {
			return wantDone(err)
		}
		if refused != nil && (err == nil || !strings.Contains(err.Error(), refused.Error())) {
			return fmt.Errorf("got the outcome %s of a batch whose checkpoint was refused, want failed with %q",
				quoteOutcome(err), refused)
		}
	}
	return nil
}

// messages returns the messages that were logged.
func (k *lineKeeper) messages() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.lines)
}

// slowly sends messages in pieces that end anywhere, also within a character.
func slowly(o *program.WorkerOptions) {
	o.Wire = func(to io.WriteCloser) io.WriteCloser { return inPieces{to} }
}

type inPieces struct{ io.WriteCloser }

// Write writes seven bytes at a time.
func (p inPieces) Write(text []byte) (n int, err error) {
	for piece := range slices.Chunk(text, 7) {
		time.Sleep(5 * time.Millisecond)
		m, err := p.WriteCloser.Write(piece)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// dies keeps the stop back, so the pipe ends without one, as that of a processor that is killed.
func dies(o *program.WorkerOptions) {
	o.Wire = func(to io.WriteCloser) io.WriteCloser { return withoutStop{to} }
}

type withoutStop struct{ io.WriteCloser }

// Write writes a message that is no stop.
func (w withoutStop) Write(text []byte) (int, error) {
	if bytes.HasPrefix(text, []byte(`{"type":"stop"`)) {
		return len(text), nil
	}
	return w.WriteCloser.Write(text)
}

// withMore adds members that a later version may have.
func withMore(o *program.WorkerOptions) {
	o.Wire = func(to io.WriteCloser) io.WriteCloser { return later{to} }
}

type later struct{ io.WriteCloser }

// Write adds members to each message.
func (l later) Write(text []byte) (int, error) {
	more := bytes.Replace(text, []byte(`{"type":`), []byte(`{"later":{"a":[1,null]},"type":`), 1)
	more = bytes.Replace(more, []byte(`{"lsn":`), []byte(`{"later":[{}],"lsn":`), -1)
	if _, err := l.WriteCloser.Write(more); err != nil {
		return 0, err
	}
	return len(text), nil
}
