package contract

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

// A checkpoint confirms its batch and the earlier ones of its lease that the program has handled, and no others: a
// later checkpoint of such another batch stores its position.
func TestACheckpointConfirmsNoOtherBatch(t *testing.T) {
	for name, tt := range map[string]struct {
		lease    string // of the second batch; the first one has -1F
		isInHand bool   // the program has the first batch during the checkpoint of the second one
	}{
		"of another lease": {lease: "1F-FF"},
		"that is in hand":  {lease: "-1F", isInHand: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, end := make(chan *feed.Batch, 2), make(chan struct{})
				c := connect(t, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
					got <- b
					<-end
					return nil
				}), HostOptions{Manual: true}, ProgramOptions{Batches: 2})
				var confirmed []string
				outcomes := make(chan error, 2)
				handle := func(lease, name string) *feed.Batch {
					b := orders()
					b.LeaseToken = lease
					b.OnCheckpoint(func(context.Context) error {
						confirmed = append(confirmed, name)
						return nil
					})
					go func() { outcomes <- c.Handle(t.Context(), b) }()
					return <-got
				}
				first := handle("-1F", "first")
				if !tt.isInHand {
					end <- struct{}{}
					synctest.Wait()
				}
				second := handle(tt.lease, "second")
				if err := errors.Join(second.Checkpoint(t.Context()), first.Checkpoint(t.Context())); err != nil {
					t.Error(err)
				}
				if want := []string{"second", "first"}; !slices.Equal(confirmed, want) {
					t.Errorf("confirmed %v, want %v", confirmed, want)
				}
				close(end)
				if err := errors.Join(<-outcomes, <-outcomes, c.end()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Two checkpoints of a batch at the same time have an answer each.
func TestEachCheckpointHasItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *feed.Batch
		c := connect(t, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			got = b
			return nil
		}), HostOptions{Manual: true}, ProgramOptions{})
		b, store := orders(), make(chan struct{})
		b.OnCheckpoint(func(context.Context) error {
			<-store
			return nil
		})
		if err := c.Handle(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		answers := make(chan error, 2)
		for range 2 {
			go func() { answers <- got.Checkpoint(ctx) }()
		}
		synctest.Wait()
		close(store)
		if err := errors.Join(<-answers, <-answers, c.end()); err != nil {
			t.Error(err)
		}
	})
}

// A handler that has done a part of a canceled batch says so: the part counts.
func TestAPartOfACanceledBatchCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		part := &feed.Failure{Done: 2, Err: errors.New("the lease is lost")}
		c := connect(t, feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			<-ctx.Done()
			return part
		}), HostOptions{}, ProgramOptions{})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(feed.ErrStopped) })
		if got, want := describe(c.Handle(ctx, orders())), describe(part); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// The process of a program may exit when Serve has returned: its last answer is in the pipe by then.
func TestServeReturnsWhenItsAnswersAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromHost, toProgram := io.Pipe()
		fromProgram, toHost := io.Pipe()
		served := make(chan error, 1)
		go func() {
			handler := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
			served <- Serve(t.Context(), fromHost, toHost, handler, ProgramOptions{})
		}()
		batch, err := encodeBatch(nil, batchHead{Type: KindBatch, ID: 1, Range: "-1F"}, orders(), false)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(toProgram, "%s%s%s", encode(hostHello{Type: KindHello, Version: Version}), batch,
			encode(hostHello{Type: KindStop, Version: Version}))
		toProgram.Close()
		synctest.Wait()
		select {
		case err := <-served:
			t.Fatalf("Serve ends with %v before its answer is read", err)
		default:
		}
		said := make(chan string, 1)
		go func() {
			all, _ := io.ReadAll(fromProgram)
			said <- string(all)
		}()
		if err := <-served; err != nil {
			t.Error(err)
		}
		toHost.Close()
		if all := <-said; !strings.Contains(all, `{"type":"done","id":1}`) {
			t.Errorf("the program has said %s", all)
		}
	})
}

// scripted connects a host with a program that answers its hello and then each batch with a line.
func scripted(t *testing.T, hello string, answer func(id int) string) *Host {
	t.Helper()
	fromHost, toProgram := io.Pipe()
	fromProgram, toHost := io.Pipe()
	go func() {
		lines := bufio.NewScanner(fromHost)
		lines.Scan()
		fmt.Fprintln(toHost, hello)
		for id := 1; lines.Scan(); id++ {
			text := answer(id)
			_, _ = io.WriteString(toHost, text)
			if !strings.HasSuffix(text, "\n") && text != "" {
				toHost.Close() // the program has died while it wrote
			}
		}
		toHost.Close()
	}()
	h, err := Connect(t.Context(), fromProgram, toProgram, HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A message without its line end is none: the program has died while it wrote.
func TestHalfAMessageIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := scripted(t, `{"type":"hello","version":1}`, func(int) string { return `{"type":"done","id":1}` })
		if err := h.Handle(t.Context(), orders()); !errors.Is(err, ErrEnded) {
			t.Errorf("got %v, want the end of the connection", err)
		}
	})
}

// A wrong answer ends the connection as the end of the program does: its batch is one of those in hand.
func TestABatchWithAWrongAnswerIsInHandAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := scripted(t, `{"type":"hello","version":1,"batches":2}`, func(id int) string {
			if id == 1 {
				return ""
			}
			return `{"type":"failed","id":2,"done":9}` + "\n"
		})
		outcomes := make(chan error, 2)
		for range 2 {
			go func() { outcomes <- h.Handle(t.Context(), orders()) }()
			synctest.Wait()
		}
		for range 2 {
			if err := <-outcomes; err == nil || err != h.Err() {
				t.Errorf("a batch ends with %v, and the connection with %v", err, h.Err())
			}
		}
		if h.Left() != 2 {
			t.Errorf("%d batches were in hand, want 2", h.Left())
		}
	})
}

// If a program has closed its input, a batch cannot be written. What the program says after that still counts.
func TestAnAnswerCrossesAWriteThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromHost, toProgram := io.Pipe()
		fromProgram, toHost := io.Pipe()
		lines := bufio.NewScanner(fromHost)
		go func() {
			lines.Scan()
			fmt.Fprintln(toHost, `{"type":"hello","version":1,"batches":2}`)
		}()
		h, err := Connect(t.Context(), fromProgram, toProgram, HostOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- h.Handle(t.Context(), orders()) }()
		lines.Scan()
		fromHost.Close()
		go func() { second <- h.Handle(t.Context(), orders()) }()
		synctest.Wait()
		fmt.Fprintln(toHost, `{"type":"done","id":1}`)
		if err := <-first; err != nil {
			t.Errorf("a batch that is done ends with %v", err)
		}
		if err := <-second; !errors.Is(err, ErrEnded) {
			t.Errorf("a batch that was not written ends with %v", err)
		}
		toHost.Close()
	})
}
