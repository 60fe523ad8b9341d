package contracttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
	"github.com/millrace/changefeed/trigger/program"
)

// abilityCases are about what a program need not have: events, questions and tokens. A program without the ability
// skips them.
var abilityCases = []testCase{
	{name: "hears the events of the processor", run: hearsEvents},
	{name: "hears first what still holds when it is started again", run: hearsWhatHolds},
	{name: "asks how far behind its unit is", run: asksStatus},
	{name: "waits until its unit has caught up", run: waitsUntilCaughtUp},
	{name: "tells the answers to its questions apart", run: tellsAnswersApart},
	{name: "asks nothing that the processor does not answer", settings: withoutAnswers, run: asksNothing},
	{name: "gives tokens of its identity", run: givesTokens},
	{name: "says why it has no token", run: saysWhyNoToken},
}

// begin starts the program with a batch, and returns the connection.
func (r *run) begin(ctx context.Context) (*contract.Host, error) {
	if err := wantDone(r.handle(ctx, `{}`)); err != nil {
		return nil, err
	}
	if host := r.Host(); host != nil {
		return host, nil
	}
	return nil, errors.New("it has ended after its first batch")
}

// beginWithEvents starts a program that asks for events.
func (r *run) beginWithEvents(ctx context.Context) error {
	host, err := r.begin(ctx)
	if err == nil && !host.WantsEvents() {
		return skip("its hello asks for no events")
	}
	return err
}

// heard returns the document of a batch that fails with the texts of the first n events.
func heard(n int) string { return fmt.Sprintf(`{"do":"heard","n":%d}`, n) }

func hearsEvents(ctx context.Context, r *run) error {
	if err := r.beginWithEvents(ctx); err != nil {
		return err
	}
	hooks, began := r.Hooks(), feed.Outage{Since: time.Unix(1000, 0), Changes: 3}
	ended := began
	ended.Ended = time.Unix(1001, 0)
	hooks.Ready(ctx)
	hooks.Acquired(ctx, feed.Lease{Token: "-7F"})
	hooks.Outage(ctx, began)
	hooks.Parked(ctx, feed.DeadLetter{
		ID: "letter", Lease: "-7F", Cause: odd, Attempts: 3, Disposition: feed.DispositionFailed,
		Change: feed.Change{ID: "item", LSN: 7, PartitionKey: feed.Key("k", 1, nil)},
	})
	hooks.Error(ctx, &feed.Error{Origin: feed.OriginSource, Lease: "-7F", Err: feed.ErrTooOld})
	hooks.Outage(ctx, ended)
	hooks.Released(ctx, feed.Lease{Token: "-7F"}, feed.ReasonLost)
	return wantText(r.handle(ctx, heard(6)), strings.Join([]string{
		"lease -7F acquired", "outage began", "parked item: " + odd, "problem " + feed.CodeOf(feed.ErrTooOld) + ": " +
			feed.ErrTooOld.Error(), "outage ended", "lease -7F lost",
	}, "; "), false)
}

func hearsWhatHolds(ctx context.Context, r *run) error {
	if err := r.beginWithEvents(ctx); err != nil {
		return err
	}
	hooks := r.Hooks()
	hooks.Acquired(ctx, feed.Lease{Token: "-7F"})
	hooks.Acquired(ctx, feed.Lease{Token: "7F-FF"})
	hooks.Released(ctx, feed.Lease{Token: "-7F"}, feed.ReasonGiven)
	hooks.Outage(ctx, feed.Outage{Since: time.Unix(1000, 0)})
	if err := r.handle(ctx, `{"do":"exit","code":3}`); err == nil {
		return errors.New("the batch that was to end it is done")
	}
	return wantText(r.handle(ctx, heard(2)), "lease 7F-FF acquired; outage began", false)
}

// unit answers the questions of a program. The functions may be nil.
type unit struct {
	mu       sync.Mutex
	asked    int // questions
	status   func(context.Context) (contract.UnitStatus, error)
	caughtUp func(context.Context) error
}

// answerWith sets the answers.
func (u *unit) answerWith(
	status func(context.Context) (contract.UnitStatus, error), caughtUp func(context.Context) error,
) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status, u.caughtUp, u.asked = status, caughtUp, 0
}

// answerStatus answers the question status.
func (u *unit) answerStatus(ctx context.Context) (contract.UnitStatus, error) {
	u.mu.Lock()
	u.asked++
	status := u.status
	u.mu.Unlock()
	if status == nil {
		return contract.UnitStatus{}, errors.New("the suite knows no status here")
	}
	return status(ctx)
}

// awaitCaughtUp answers the question caughtup.
func (u *unit) awaitCaughtUp(ctx context.Context) error {
	u.mu.Lock()
	u.asked++
	caughtUp := u.caughtUp
	u.mu.Unlock()
	if caughtUp == nil {
		return errors.New("the suite has nothing to wait for here")
	}
	return caughtUp(ctx)
}

// count returns how many questions were asked.
func (u *unit) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked
}

// asksNoQuestions is the outcome of a program that handles the change of a question as any other.
const asksNoQuestions = skip("it asks no questions")

// ask hands a document over that makes the program ask. The outcome of a program that asks no questions is skipped.
func (r *run) ask(ctx context.Context, document string) error {
	err := r.handle(ctx, document)
	if err == nil && r.unit.count() == 0 {
		return asksNoQuestions
	}
	return err
}

func asksStatus(ctx context.Context, r *run) error {
	status := contract.UnitStatus{
		Instances: 2, Unknown: new("a lease is not measured"), Stuck: []string{},
		Leases: []contract.UnitLease{
			{Lease: "-7F", Lag: new(int64(12)), Stuck: []string{}, Notes: []string{odd}},
			{Lease: "7F-FF", Stuck: []string{}, Notes: []string{}},
		},
	}
	var refused error
	r.unit.answerWith(func(context.Context) (contract.UnitStatus, error) { return status, refused }, nil)
	const question = `{"do":"status"}`
	if err := r.ask(ctx, question); errors.Is(err, asksNoQuestions) {
		return err
	} else if err := wantText(err, "pending null; -7F 12; 7F-FF null", false); err != nil {
		return fmt.Errorf("of a lag that is not known: %w", err)
	}
	status.Pending, status.Leases = new(int64(0)), status.Leases[:0]
	if err := wantText(r.ask(ctx, question), "pending 0", false); err != nil {
		return fmt.Errorf("of a unit that has caught up: %w", err)
	}
	refused = errors.New(odd)
	if err := wantText(r.ask(ctx, question), odd, false); err != nil {
		return fmt.Errorf("of a status with an error: %w", err)
	}
	return nil
}

func waitsUntilCaughtUp(ctx context.Context, r *run) error {
	asked, release := make(chan struct{}), make(chan struct{})
	r.unit.answerWith(nil, func(ctx context.Context) error {
		close(asked)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	outcome := make(chan error, 1)
	r.calls.Go(func() { outcome <- r.ask(ctx, `{"do":"caughtup"}`) })
	select {
	case <-asked:
	case err := <-outcome:
		return cmpSkip(err, "it has not asked")
	}
	select {
	case err := <-outcome:
		return fmt.Errorf("got the outcome %s before the answer", quoteOutcome(err))
	case <-time.After(200 * time.Millisecond):
		close(release)
	}
	if err := wantDone(<-outcome); err != nil {
		return err
	}
	r.unit.answerWith(nil, func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err := r.ask(ctx, `{"do":"caughtup","seconds":0.4}`); err == nil || errors.Is(err, errLate) {
		return fmt.Errorf("got the outcome %s of a question with 0.4 seconds, want failed", quoteOutcome(err))
	}
	r.unit.answerWith(nil, func(context.Context) error { return errors.New(odd) })
	return wantText(r.ask(ctx, `{"do":"caughtup"}`), odd, false)
}

// cmpSkip returns a skip as it is, and another outcome with what is wrong.
func cmpSkip(err error, wrong string) error {
	if errors.Is(err, asksNoQuestions) {
		return err
	}
	return fmt.Errorf("%s: got the outcome %s", wrong, quoteOutcome(err))
}

// tellsAnswersApart asks two questions, of which the second is answered first.
func tellsAnswersApart(ctx context.Context, r *run) error {
	if _, err := r.begin(ctx); err != nil {
		return err
	}
	if r.Batches() < 2 {
		return skip(fmt.Sprintf("its hello has room for %d batch at once", r.Batches()))
	}
	asked, answered := make(chan struct{}), make(chan struct{})
	r.unit.answerWith(func(context.Context) (contract.UnitStatus, error) {
		return contract.UnitStatus{Pending: new(int64(5)), Stuck: []string{}, Leases: []contract.UnitLease{}}, nil
	}, func(ctx context.Context) error {
		close(asked)
		select {
		case <-answered:
			return errors.New("behind")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	first := make(chan error, 1)
	r.calls.Go(func() { first <- r.handleBatch(ctx, r.batch("1", `{"do":"caughtup"}`)) })
	select {
	case <-asked:
	case err := <-first:
		if err == nil {
			return asksNoQuestions
		}
		return fmt.Errorf("it has not asked: got the outcome %s", quoteOutcome(err))
	}
	err := wantText(r.handleBatch(ctx, r.batch("2", `{"do":"status"}`)), "pending 5", false)
	close(answered)
	return errors.Join(err, wantText(<-first, "behind", false))
}

// withoutAnswers makes a processor that answers no question.
func withoutAnswers(o *program.WorkerOptions) { o.Status, o.CaughtUp = nil, nil }

func asksNothing(ctx context.Context, r *run) error {
	for _, question := range []string{`{"do":"status"}`, `{"do":"caughtup"}`} {
		switch err := r.handle(ctx, question); {
		case err == nil:
			return asksNoQuestions
		case errors.As(err, new(*contract.BreachError)), errors.Is(err, errLate):
			return fmt.Errorf("got the outcome %s, want failed", quoteOutcome(err))
		}
	}
	return wantDone(r.handle(ctx, `{}`))
}

// beginWithTokens starts a program that gives tokens.
func (r *run) beginWithTokens(ctx context.Context) (*contract.Host, error) {
	host, err := r.begin(ctx)
	if err == nil && !host.OffersTokens() {
		return nil, skip("its hello offers no tokens")
	}
	return host, err
}

// givesTokens asks for tokens while the handler has a batch.
func givesTokens(ctx context.Context, r *run) error {
	host, err := r.beginWithTokens(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*r.o.Patience, errLate)
	defer cancel()
	outcome := make(chan error, 1)
	r.calls.Go(func() { outcome <- r.handle(ctx, `{"do":"sleep","seconds":0.5}`) })
	if err := r.awaitRunning(ctx); err != nil {
		return err
	}
	wrong := make(chan error, 3)
	for i := range cap(wrong) {
		r.calls.Go(func() { wrong <- wantToken(ctx, host, fmt.Sprintf("https://account-%d.example/.default", i)) })
	}
	for range cap(wrong) {
		err = errors.Join(err, <-wrong)
	}
	return errors.Join(err, wantDone(<-outcome))
}

// wantToken returns an error unless the program gives a token of a scope.
func wantToken(ctx context.Context, host *contract.Host, scope string) error {
	token, err := host.Token(ctx, scope)
	switch {
	case err != nil:
		return err
	case token.Text != scope || !token.Expires.Equal(expires):
		return fmt.Errorf("got the token %q until %v for the scope %s, want the scope, until %v", token.Text,
			token.Expires, scope, expires)
	}
	return nil
}

func saysWhyNoToken(ctx context.Context, r *run) error {
	host, err := r.beginWithTokens(ctx)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeoutCause(ctx, r.o.Patience, errLate)
	defer cancel()
	if _, err := host.Token(asking, noScope); err == nil || !strings.Contains(err.Error(), "no token") {
		return fmt.Errorf("got the outcome %s for the scope %q, want the error \"no token\"", quoteOutcome(err), noScope)
	}
	if err := wantToken(asking, host, "https://account.example/.default"); err != nil {
		return fmt.Errorf("after a token that it has not: %w", err)
	}
	return wantDone(r.handle(ctx, `{}`))
}
