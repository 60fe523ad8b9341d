package contract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

// As many questions as the page says may wait, and not one more.
func TestQuestionsWaitUpToTheirNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unit, answered := new(Unit), make(chan struct{})
		c := connect(t, idle, HostOptions{CaughtUp: func(ctx context.Context) error {
			select {
			case <-answered:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}, ProgramOptions{Unit: unit})
		outcomes := make(chan error, maxQuestions+1)
		ask := func() { outcomes <- unit.CaughtUp(t.Context()) }
		for range maxQuestions {
			go ask()
		}
		synctest.Wait()
		if err := c.Err(); maxQuestions != 1000 || err != nil {
			t.Fatalf("got %v with %d questions, want 1000 that wait", err, maxQuestions)
		}
		close(answered)
		for range maxQuestions {
			if err := <-outcomes; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		answered = make(chan struct{}) // nobody waits for the earlier one any more
		for range maxQuestions + 1 {
			go ask()
		}
		synctest.Wait()
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), "more than 1000 questions wait") {
			t.Errorf("got %v with one question too many", err)
		}
		for range maxQuestions + 1 {
			<-outcomes
		}
		<-c.served
	})
}

// A status costs requests, so the next one is measured when the one before is there.
func TestOneStatusIsMeasuredAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unit, measured := new(Unit), make(chan struct{})
		begun := make(chan struct{}, 3)
		c := connect(t, idle, HostOptions{Status: func(context.Context) (UnitStatus, error) {
			begun <- struct{}{}
			<-measured
			return UnitStatus{}, nil
		}}, ProgramOptions{Unit: unit})
		outcomes := make(chan error, cap(begun))
		for range cap(begun) {
			go func() {
				_, err := unit.Status(t.Context())
				outcomes <- err
			}()
		}
		for range cap(begun) {
			synctest.Wait()
			if n := len(begun); n != 1 {
				t.Errorf("%d are measured at once", n)
			}
			<-begun
			measured <- struct{}{}
			if err := <-outcomes; err != nil {
				t.Error(err)
			}
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// What comes when Serve has returned calls nobody: the owner of the handler may have closed all that it needs.
func TestNoCallBeginsWhenServeHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromHost, toProgram := io.Pipe()
		_, fromProgram := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		over, unit := false, new(Unit)
		handler := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			if over {
				t.Error("the handler was called after the return")
			}
			return nil
		})
		served := make(chan error, 1)
		go func() { served <- Serve(ctx, fromHost, fromProgram, handler, ProgramOptions{Unit: unit}) }()
		synctest.Wait()
		cancel()
		fromProgram.Close() // what is left to write fails
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		over = true
		head := batchHead{Type: KindBatch, ID: 1, Lease: "-FF", Range: "-FF", Attempt: 1}
		line, err := encodeBatch(nil, head, orders(), false)
		if err != nil {
			t.Fatal(err)
		}
		hello := encode(hostHello{KindHello, Version, "unit", "one", false, []string{CanStatus}})
		if _, err := toProgram.Write(append(hello, line...)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if _, err := unit.Status(t.Context()); !errors.Is(err, ErrHostGone) {
			t.Errorf("got the status %v of a program that has ended", err)
		}
		toProgram.Close()
	})
}

// A failure that does not fit its batch is a failure of the whole batch, as in the process of the processor. The
// program goes on.
func TestAFailureThatDoesNotFitFailsTheWholeBatch(t *testing.T) {
	bad := errors.New("no city")
	for _, tt := range []struct {
		said *feed.Failure
		want string
	}{
		{
			&feed.Failure{Done: 3, Err: bad},
			"no city (after 3 changes) (the whole batch has failed: Failure.Done is 3, want 0 to 2)",
		},
		{&feed.Failure{Done: -1, Err: bad}, "no city (the whole batch has failed: Failure.Done is -1, want 0 to 2)"},
		{
			&feed.Failure{Items: map[int]error{3: bad}},
			"no city (1 change failed) (the whole batch has failed: Failure.Items names change 3, want 0 to 2)",
		},
		{&feed.Failure{Err: bad, After: -time.Second}, "no city"},
		{&feed.Failure{Err: bad, After: 48 * time.Hour}, "24h0m0s no city"},
	} {
		synctest.Test(t, func(t *testing.T) {
			handler := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return tt.said })
			c := connect(t, handler, HostOptions{}, ProgramOptions{})
			err := c.Handle(t.Context(), orders())
			got := fmt.Sprint(err)
			if f, ok := errors.AsType[*feed.Failure](err); ok {
				got = fmt.Sprint(f.After, " ", f)
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if err := c.end(); err != nil {
				t.Error(err)
			}
		})
	}
}
