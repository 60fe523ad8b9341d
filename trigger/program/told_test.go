//go:build unix

package program_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/program"
)

// repeatMessages is a program that says a hello and another message, and then prints what it is told.
func repeatMessages(message string) {
	out := os.NewFile(4, "to the host")
	fmt.Fprintf(out, "%s\n%s\n", `{"type":"hello","version":1}`, message)
	told := bufio.NewScanner(os.NewFile(3, "from the host"))
	for told.Scan() {
		fmt.Fprintln(os.Stderr, "told", told.Text())
	}
	os.Exit(0)
}

// repeatEvents is a program that asks for events, prints what it is told, and ends when a change is parked.
func repeatEvents() {
	out := os.NewFile(4, "to the host")
	fmt.Fprintln(out, `{"type":"hello","version":1,"events":true}`)
	told := bufio.NewScanner(os.NewFile(3, "from the host"))
	for told.Scan() {
		fmt.Fprintln(os.Stderr, "told", told.Text())
		if strings.Contains(told.Text(), `"type":"parked"`) {
			break
		}
	}
	os.Exit(0)
}

// A program that is started again hears first what still holds: ready, the leases of the instance and an outage. What
// is over it does not hear.
func TestANewProgramHearsWhatStillHolds(t *testing.T) {
	w, log := start(t, "hears", program.WorkerOptions{})
	ctx, hooks := t.Context(), w.Hooks()
	awaitLine(t, log, "the program runs")
	began := feed.Outage{Since: time.Unix(1000, 0)}
	hooks.Ready(ctx)
	awaitLine(t, log, `{\"type\":\"ready\"}`) // from now on the program hears what happens
	hooks.Acquired(ctx, feed.Lease{Token: "stays"})
	hooks.Acquired(ctx, feed.Lease{Token: "goes"})
	hooks.Outage(ctx, began)
	hooks.Parked(ctx, feed.DeadLetter{ID: "first"})
	// The letter is told after all that the new program hears first.
	const ready, stays = `{\"type\":\"ready\"}`, `{\"type\":\"lease\",\"lease\":\"stays\",\"what\":\"acquired\"}`
	const goes, outage = `{\"type\":\"lease\",\"lease\":\"goes\",\"what\":\"acquired\"}`, `{\"type\":\"outage\"`
	next := func(letter string, want ...string) {
		t.Helper()
		awaitCount(t, log, ready, strings.Count(log.String(), "is started again")+1)
		hooks.Parked(ctx, feed.DeadLetter{ID: letter})
		awaitLine(t, log, `\"letter\":\"`+letter+`\"`)
		text := log.String()
		text = text[strings.LastIndex(text, "the program runs"):]
		var got []string
		for _, event := range []string{ready, goes, stays, outage} {
			if strings.Contains(text, "told "+event) {
				got = append(got, event)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("before the letter %s, the program hears %v, want %v", letter, got, want)
		}
	}
	awaitLine(t, log, "is started again")
	next("second", ready, goes, stays, outage)
	ended := began
	ended.Ended = time.Unix(1001, 0)
	hooks.Outage(ctx, ended)
	hooks.Released(ctx, feed.Lease{Token: "goes"}, feed.ReasonGiven)
	awaitCount(t, log, "is started again", 2)
	next("third", ready, stays)
}

// answerAndExit is a program that handles a batch and ends, as one does that is afraid of leaks.
func answerAndExit() {
	in, out := bufio.NewScanner(os.NewFile(3, "from the host")), os.NewFile(4, "to the host")
	in.Scan()
	fmt.Fprintln(out, `{"type":"hello","version":1}`)
	in.Scan()
	fmt.Fprint(out, strings.Repeat(`{"type":"heartbeat"}`+"\n", 3000)+`{"type":"done","id":1}`+"\n")
	os.Exit(0)
}

// What a program has said before its end counts, however much it is.
func TestTheLastAnswerOfAProgramCounts(t *testing.T) {
	for range 10 {
		w, _ := start(t, "once", program.WorkerOptions{})
		if err := w.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
			t.Error(err)
		}
	}
}

// awaitLine waits until a log has a text.
func awaitLine(t *testing.T, log *lines, text string) {
	t.Helper()
	awaitCount(t, log, text, 1)
}

// awaitCount waits until a log has a text some times.
func awaitCount(t *testing.T, log *lines, text string, n int) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for range 30_000 {
		if strings.Count(log.String(), text) >= n {
			return
		}
		<-ticker.C
	}
	t.Fatalf("the log has %s not %d times:\n%s", text, n, log)
}

// A program that has broken the contract may read how, before it is killed.
func TestAProgramReadsHowItHasBrokenTheContract(t *testing.T) {
	_, log := start(t, "breaks", program.WorkerOptions{})
	awaitLine(t, log, "is started again")
	const told = `told {\"type\":\"error\",\"error\":\"the program has broken the contract: type is \\\"nothing\\\"`
	if !strings.Contains(log.String(), told) {
		t.Errorf("the program is not told:\n%s", log)
	}
}

// The stop says how long the batches in hand have, and not how long the program has after them.
func TestAStopSaysHowLongTheBatchesHave(t *testing.T) {
	t.Setenv("PROGRAM_TEST", "listens")
	log := &lines{}
	w, err := program.NewWorker([]string{os.Args[0]}, program.WorkerOptions{
		Grace: 5 * time.Second, Drain: 7 * time.Second, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	w.Start(ctx)
	defer w.Close()
	awaitLine(t, log, "the program runs")
	stop()
	awaitLine(t, log, `told {\"type\":\"stop\"`)
	if !strings.Contains(log.String(), `\"seconds\":7}`) {
		t.Errorf("the program is told another time than 7 s:\n%s", log)
	}
}

// A program that handles batches and ends now and then is started again soon each time.
func TestAHandledBatchShortensThePause(t *testing.T) {
	w, log := start(t, "good", program.WorkerOptions{})
	for range 3 {
		if err := w.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
			t.Error(err)
		}
		if err := w.Handle(t.Context(), batch("-FF", `{"do":"exit","code":3}`)); err == nil {
			t.Error("a batch that ends its program is done")
		}
	}
	if err := w.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "in=100ms"); n != 3 {
		t.Errorf("%d pauses of 100 ms, want 3:\n%s", n, log)
	}
}

// A program that must confirm its batches, and ends each time before it does, gets on nowhere: the pauses grow, or its
// lease would be given up and taken again for ever, several times a second. A confirmed batch makes them short again.
func TestOnlyAConfirmedBatchShortensThePauseOfAManualProgram(t *testing.T) {
	w, log := start(t, "good", program.WorkerOptions{Manual: true})
	handle := func(document string) error {
		b := batch("-FF", document)
		b.OnCheckpoint(func(context.Context) error { return nil })
		return w.Handle(t.Context(), b)
	}
	for _, before := range []string{`{}`, `{}`, `{"do":"checkpoint"}`} {
		if err := handle(before); err != nil {
			t.Error(err)
		}
		if err := handle(`{"do":"exit","code":3}`); err == nil {
			t.Error("a batch that ends its program is done")
		}
	}
	if err := w.Handle(t.Context(), batch("-FF", `{}`)); err != nil { // after the last pause, one to confirm no more
		t.Error(err)
	}
	var pauses []string
	for _, found := range regexp.MustCompile(`in=(\S+)`).FindAllStringSubmatch(log.String(), -1) {
		pauses = append(pauses, found[1])
	}
	if want := []string{"100ms", "200ms", "100ms"}; !slices.Equal(pauses, want) {
		t.Errorf("the pauses are %v, want %v", pauses, want)
	}
}

// A batch that waits while the program ends is handled by the next one: nobody is to blame for it.
func TestABatchThatWasNotSentGoesToTheNextProgram(t *testing.T) {
	w, log := start(t, "single", program.WorkerOptions{})
	bad, waits := make(chan error, 1), make(chan error, 1)
	go func() {
		bad <- w.Handle(t.Context(), batch("bad", `{"do":"print","error":"begun"}`, `{"do":"sleep","seconds":0.3}`,
			`{"do":"exit","code":3}`))
	}()
	awaitLine(t, log, "begun")
	go func() { waits <- w.Handle(t.Context(), batch("waits", `{}`)) }()
	if err := <-bad; err == nil || isOutage(err) {
		t.Errorf("the batch that ends the program ends with %v", err)
	}
	if err := <-waits; err != nil {
		t.Errorf("a batch that was not sent ends with %v", err)
	}
}

// A suspect that fails without ending its program is none any more: batches come several at once again.
func TestASuspectThatFailsIsAcquitted(t *testing.T) {
	w, _ := start(t, "good", program.WorkerOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	handleBoth := func(first, second []string) (errs [2]error) {
		other := make(chan error, 1)
		go func() { other <- w.Handle(ctx, batch("b", second...)) }()
		errs[0] = w.Handle(ctx, batch("a", first...))
		errs[1] = <-other
		return errs
	}
	meet := `{"do":"meet","n":2}`
	for _, err := range handleBoth([]string{meet, `{"do":"wait"}`}, []string{meet, `{"do":"exit","code":9}`}) {
		if !isOutage(err) {
			t.Errorf("got %v, want a failure that counts no attempt", err)
		}
	}
	fails := []string{`{"do":"fail all","error":"no city"}`}
	for _, err := range handleBoth(fails, fails) {
		if err == nil || isOutage(err) {
			t.Errorf("got %v, want a failure that counts", err)
		}
	}
	for _, err := range handleBoth([]string{meet}, []string{meet}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// A batch that is finished although it was canceled is not named as unfinished.
func TestABatchThatIsDoneIsNotUnfinished(t *testing.T) {
	w, log := start(t, "deaf", program.WorkerOptions{Grace: time.Minute})
	ctx, cancel := context.WithCancelCause(t.Context())
	outcome := make(chan error, 1)
	go func() {
		outcome <- w.Handle(ctx, batch("-FF", `{"do":"print","error":"begun"}`, `{"do":"sleep","seconds":0.1}`))
	}()
	awaitLine(t, log, "begun")
	cancel(feed.ErrStopped)
	if err := <-outcome; err != nil {
		t.Error(err)
	}
	if got := w.Unfinished(); len(got) != 0 {
		t.Errorf("unfinished: %v, want none", got)
	}
}
