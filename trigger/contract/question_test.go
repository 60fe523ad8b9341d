package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

// idle is a handler of programs that get no batch.
var idle = feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })

// What is not known stays nil on the way: a program must not take it for 0.
func TestAProgramAsksHowFarBehindItsUnitIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := UnitStatus{
			Instances: 2, Unknown: new("no lease covers 10-20"), Stuck: []string{"free"},
			Leases: []UnitLease{{
				Lease: "-FF", Owner: new("one"), Lag: new(int64(7)), Waited: new(1.5), State: "live", Stuck: []string{},
				Notes: []string{},
			}},
		}
		outcome := error(nil)
		unit := new(Unit)
		c := connect(t, idle, HostOptions{
			Status: func(context.Context) (UnitStatus, error) { return want, outcome },
		}, ProgramOptions{Unit: unit})
		got, err := unit.Status(t.Context())
		if err != nil || !reflect.DeepEqual(got, &want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		outcome = fmt.Errorf("list: %w", feed.ErrThrottled)
		_, err = unit.Status(t.Context())
		if no, ok := errors.AsType[*AnswerError](err); !ok || no.Code != "throttled" || no.Text != outcome.Error() {
			t.Errorf("got %v, want the error of the processor with its word", err)
		}
		if err := unit.CaughtUp(t.Context()); !errors.Is(err, ErrUnasked) {
			t.Errorf("got %v from a processor that answers no such question", err)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if _, err := unit.Status(t.Context()); !errors.Is(err, ErrHostGone) {
			t.Errorf("got %v after the end", err)
		}
	})
}

// A wait has the time that the program gives it, and its error says what is behind. Batches go on meanwhile.
func TestAProgramWaitsUntilItsUnitHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caughtUp := make(chan struct{})
		unit := new(Unit)
		c := connect(t, idle, HostOptions{CaughtUp: func(ctx context.Context) error {
			select {
			case <-caughtUp:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("lease -FF is at 7: %w", context.Cause(ctx))
			}
		}}, ProgramOptions{Unit: unit})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := unit.CaughtUp(short)
		no, ok := errors.AsType[*AnswerError](err)
		if !ok || no.Code != "timeout" || !strings.Contains(no.Text, "is at 7") {
			t.Errorf("got %v, want what is behind", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- unit.CaughtUp(t.Context()) }()
		if err := c.Handle(t.Context(), orders()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(waited) > 0 {
			t.Error("the wait was over before the unit had caught up")
		}
		close(caughtUp)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// Only questions that wait are counted: a program may ask for as long as it lives.
func TestAProgramMayAskAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unit := new(Unit)
		caughtUp := func(context.Context) error { return nil }
		c := connect(t, idle, HostOptions{CaughtUp: caughtUp}, ProgramOptions{Unit: unit})
		for i := range maxQuestions + 1 {
			if err := unit.CaughtUp(t.Context()); err != nil {
				t.Fatalf("question %d: %v", i+1, err)
			}
			synctest.Wait() // the answer was sent before the question is over
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// A question that waits ends with the connection, on both sides.
func TestAQuestionEndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unit := new(Unit)
		c := connect(t, idle, HostOptions{CaughtUp: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}}, ProgramOptions{Unit: unit})
		waited := make(chan error, 1)
		go func() { waited <- unit.CaughtUp(t.Context()) }()
		synctest.Wait()
		if err := c.end(); err != nil {
			t.Error(err)
		}
		if err := <-waited; !errors.Is(err, ErrHostGone) {
			t.Errorf("got %v", err)
		}
		c.Wait()
	})
}

// told collects the events of a program.
func told(to *[]Event) ProgramOptions {
	return ProgramOptions{Event: func(e Event) { *to = append(*to, e) }}
}

func TestAProgramThatAsksHearsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Event
		c := connect(t, idle, HostOptions{Events: true}, told(&got))
		hooks := EventHooks(c.Tell, func(error) string { return "wait" })
		ctx, lease := t.Context(), feed.Lease{Token: "-FF"}
		since := time.Unix(1000, 0).UTC()
		hooks.Ready(ctx)
		hooks.Acquired(ctx, lease)
		hooks.Released(ctx, lease, feed.ReasonLost)
		hooks.Released(ctx, lease, feed.ReasonStuck)
		hooks.Released(ctx, lease, feed.ReasonGiven)
		hooks.Parked(ctx, feed.DeadLetter{
			ID: "L", Lease: "-FF", Cause: "no city", Attempts: 3, Disposition: feed.DispositionPoison,
			Change: feed.Change{ID: "7", LSN: 9, PartitionKey: `["a"]`},
		})
		hooks.Outage(ctx, feed.Outage{Since: since, Changes: 4})
		hooks.Outage(ctx, feed.Outage{Since: since, Ended: since.Add(1)})
		hooks.Error(ctx, &feed.Error{Origin: feed.OriginHandler, Lease: "-FF", Err: &feed.BatchError{
			Attempt: 2, Err: feed.ErrThrottled,
		}})
		hooks.Error(ctx, &feed.Error{Origin: feed.OriginHandler, Err: feed.ErrOutage}) // the event outage says it
		hooks.Error(ctx, &feed.Error{Origin: feed.OriginSource, Err: errors.New("other")})
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i].Type != KindProblem {
				continue
			}
			if text := got[i].Error; !strings.Contains(text, "request rate") && text != "other" {
				t.Errorf("the problem has the text %q", text)
			}
			got[i].Error = ""
		}
		want := []Event{
			{Type: KindReady},
			{Type: KindLease, Lease: "-FF", What: Acquired},
			{Type: KindLease, Lease: "-FF", What: Lost, Reason: string(feed.ReasonLost)},
			{Type: KindLease, Lease: "-FF", What: Lost, Reason: string(feed.ReasonStuck)},
			{Type: KindLease, Lease: "-FF", What: Released, Reason: string(feed.ReasonGiven)},
			{
				Type: KindParked, Letter: "L", Lease: "-FF", Item: "7", Key: []byte(`["a"]`), LSN: 9, Cause: "no city",
				Attempts: 3, Disposition: "poison",
			},
			{Type: KindOutage, What: Began, Since: &since, Count: 4},
			{Type: KindOutage, What: Ended, Since: &since},
			{Type: KindProblem, Origin: "handler", Lease: "-FF", Attempt: 2, Code: "throttled", Hint: "wait"},
			{Type: KindProblem, Origin: "source", Code: "failed", Hint: "wait"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

// A program of before, which would not understand them, hears of no event and of no ability.
func TestAProgramThatDoesNotAskHearsNoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromHost, toProgram := io.Pipe()
		toHost, fromProgram := io.Pipe()
		said := make(chan string, 1)
		go func() {
			_, _ = io.WriteString(fromProgram, `{"type":"hello","version":1}`+"\n")
			all, _ := io.ReadAll(fromHost)
			said <- string(all)
			fromProgram.Close()
		}()
		host, err := Connect(t.Context(), toHost, toProgram, HostOptions{Events: true})
		if err != nil {
			t.Fatal(err)
		}
		host.Tell(Event{Type: KindReady})
		host.Fail("gone", "failed", "leases-gone", "")
		if got, want := <-said, `{"type":"hello","version":1,"can":["columns","events"]}`+"\n"; got != want {
			t.Errorf("the program hears %q, want %q", got, want)
		}
	})
}

// A program that does not read must not fill the memory of its processor, and learns how much it has not heard.
func TestEventsForAProgramThatDoesNotReadAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const more = 7
		gate := make(chan struct{})
		var got []Event
		c := connect(t, idle, HostOptions{Events: true}, ProgramOptions{Event: func(e Event) {
			<-gate
			got = append(got, e)
		}})
		c.Tell(Event{Type: KindReady})
		synctest.Wait() // the program has it, and reads no further
		c.Tell(Event{Type: KindReady})
		synctest.Wait() // this one is being written: it waits no more
		for range maxEvents + more {
			c.Tell(Event{Type: KindReady})
		}
		close(gate)
		synctest.Wait()
		c.Tell(Event{Type: KindReady})
		c.Tell(Event{Type: KindReady}) // no further one was left out before it
		if err := c.end(); err != nil {
			t.Fatal(err)
		}
		n := len(got)
		missed := []int{got[n-3].Missed, got[n-2].Missed, got[n-1].Missed}
		if want := []int{0, more, 0}; n != maxEvents+4 || !slices.Equal(missed, want) {
			t.Errorf("%d events came, the last with %v missed: want %d, and %v", n, missed, maxEvents+4, want)
		}
	})
}

func TestAProgramGivesTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expires := time.Now().Add(time.Hour).UTC()
		refused := error(nil)
		give := func(_ context.Context, scope string) (Token, error) {
			return Token{"token for " + scope, expires}, refused
		}
		c := connect(t, idle, HostOptions{}, ProgramOptions{Token: give})
		got, err := c.Token(t.Context(), "https://a/.default")
		if err != nil || got.Text != "token for https://a/.default" || !got.Expires.Equal(expires) {
			t.Errorf("got %+v, %v", got, err)
		}
		refused = errors.New("logged out")
		if _, err := c.Token(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "logged out") {
			t.Errorf("got %v", err)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
		other := connect(t, idle, HostOptions{}, ProgramOptions{})
		if _, err := other.Token(t.Context(), "x"); !errors.Is(err, ErrNoTokens) {
			t.Errorf("got %v from a program without tokens", err)
		}
		if err := other.end(); err != nil {
			t.Error(err)
		}
	})
}

// A request for a token has one answer.
func TestASecondAnswerToARequestForATokenBreaksTheContract(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromHost, toProgram := io.Pipe()
		toHost, fromProgram := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, fromHost) }()
		go func() { _, _ = io.WriteString(fromProgram, `{"type":"hello","version":1,"tokens":true}`+"\n") }()
		host, err := Connect(t.Context(), toHost, toProgram, HostOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			go func() {
				synctest.Wait()
				_, _ = io.WriteString(fromProgram, `{"type":"token","id":1,"error":"logged out"}`+"\n")
			}()
			if _, err := host.Token(t.Context(), "x"); err == nil {
				t.Error("a token was given")
			}
		}
		fromProgram.Close()
		host.Wait()
		if err := host.Err(); !strings.Contains(err.Error(), "the token 1 has an answer already") {
			t.Errorf("got %v", err)
		}
	})
}

// An error about a message is logged, and says what is wrong, but not the token in the message.
func TestAWrongQuestionBreaksTheContract(t *testing.T) {
	for message, want := range map[string]string{
		`{"type":"status"}`:                          "id is 0",
		`{"type":"caughtup","id":1}`:                 "answers no caughtup",
		`{"type":"status","id":1,"seconds":-1}`:      "seconds is -1",
		`{"type":"token","id":9,"token":"geheim"}`:   "has not asked for the token 9",
		`{"type":"token","token":"geheim","id":"x"}`: "id is a JSON string",
		`{"token":"geheim"`:                          "want a JSON object",
		`{'type': 'token', 'token': 'geheim'}`:       "want a JSON object",
		`{"type":"Token","accessToken":"geheim"}`:    `type is "Token"`,
		`eyJgeheim`: "want a JSON object",
		`{"type":"hello","version":1,"tokens":true}`: `a second hello, in the message {"type":"hello"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			fromHost, toProgram := io.Pipe()
			toHost, fromProgram := io.Pipe()
			go func() { _, _ = io.Copy(io.Discard, fromHost) }()
			go func() {
				_, _ = io.WriteString(fromProgram, `{"type":"hello","version":1}`+"\n"+message+"\n")
				fromProgram.Close()
			}()
			host, _ := Connect(t.Context(), toHost, toProgram, HostOptions{
				Status: func(context.Context) (UnitStatus, error) { return UnitStatus{}, nil },
			})
			<-host.Done()
			host.Wait()
			if err := host.Err(); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
				t.Errorf("after %s: %v, want %q", message, err, want)
			}
		})
	}
}
