package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
)

// connected is a host with a program that calls a handler, in a bubble.
type connected struct {
	*Host
	served chan error // the result of Serve
	cut    func()     // ends the connection as the death of the host does
}

// connect connects a host with a program.
func connect(t *testing.T, handler feed.Handler, o HostOptions, p ProgramOptions) *connected {
	t.Helper()
	toProgram, fromHost := io.Pipe()
	toHost, fromProgram := io.Pipe()
	c := &connected{served: make(chan error, 1), cut: func() { fromHost.Close(); toHost.Close() }}
	go func() {
		err := Serve(t.Context(), toProgram, fromProgram, handler, p)
		fromProgram.Close()
		c.served <- err
	}()
	host, err := Connect(t.Context(), toHost, fromHost, o)
	if err != nil {
		t.Fatal(err)
	}
	c.Host = host
	return c
}

// end ends the connection as a host does, and returns the result of Serve.
func (c *connected) end() error {
	c.Stop(0)
	synctest.Wait()
	c.Close()
	return <-c.served
}

// orders is a batch with all that a batch can have.
func orders() *feed.Batch {
	return &feed.Batch{
		LeaseToken: "-1F", Range: feed.Range{Max: "1F"}, Instance: "one", Epoch: 3, Attempt: 2, Cut: true,
		Redriven: true, Session: "0:-1#7", Charge: 1.5, Position: feed.At(`"7"`), Head: 9,
		Changes: []feed.Change{
			{
				Op: feed.OpCreate, LSN: 5, ID: "1", PartitionKey: `["a"]`, Time: time.Unix(1000, 0).UTC(),
				Body: []byte(`{"id":"1","text":"<ü\u2028\u0000😀>","n":12345678901234567890,"one":1.0}`),
			},
			{
				Op: feed.OpDelete, LSN: 6, ID: "2", PartitionKey: `[{}]`, Time: time.Unix(1001, 0).UTC(), Expired: true,
				Previous: []byte(`{"id":"2"}`), PreviousLSN: 4,
			},
			{LSN: 6, ID: "3", PartitionKey: `[1,null]`, Time: time.Unix(1001, 0).UTC(), Body: []byte(`{}`)},
		},
	}
}

func TestAProgramReceivesABatchAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *feed.Batch
		c := connect(t, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			got = b
			return nil
		}), HostOptions{}, ProgramOptions{Client: "go 1", Batches: 3})
		if err := c.Handle(t.Context(), orders()); err != nil {
			t.Fatal(err)
		}
		if want := orders(); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if c.Client() != "go 1" || c.Batches() != 3 {
			t.Errorf("hello of %q for %d batches", c.Client(), c.Batches())
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestAnOutcomeReturnsAsTheHandlerSays(t *testing.T) {
	bad := errors.New("no such street: \"Karl-Marx-Allee\" \n<b>")
	for name, outcome := range map[string]error{
		"done":           nil,
		"failed":         bad,
		"poison":         feed.Poison(bad),
		"the first done": &feed.Failure{Done: 2, Err: bad},
		"an outage":      &feed.Failure{Outage: true, After: 1500 * time.Millisecond, Err: bad},
		"some":           &feed.Failure{Items: map[int]error{0: bad, 2: feed.Poison(bad), 1: feed.ErrUntried}},
		"some, and why":  &feed.Failure{Items: map[int]error{0: bad}, Err: errors.New("1 of 3")},
		"poison after":   &feed.Failure{Done: 1, Err: feed.Poison(bad)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := connect(t, feed.HandlerFunc(func(context.Context, *feed.Batch) error { return outcome }),
					HostOptions{}, ProgramOptions{})
				got := c.Handle(t.Context(), orders())
				if told, want := describe(got), describe(outcome); told != want {
					t.Errorf("got  %s\nwant %s", told, want)
				}
				if err := c.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// describe returns all that an outcome says.
func describe(err error) string {
	if err == nil {
		return "done"
	}
	f, ok := errors.AsType[*feed.Failure](err)
	if !ok {
		return fmt.Sprintf("%q, poison %v", err, feed.IsPoison(err))
	}
	items := map[int]string{}
	for i, err := range f.Items {
		items[i] = fmt.Sprintf("%q, poison %v, untried %v", err, feed.IsPoison(err), err == feed.ErrUntried)
	}
	cause := "none"
	if f.Err != nil {
		cause = describe(f.Err)
	}
	return fmt.Sprintf("done %d, items %v, outage %v, after %v, cause %s", f.Done, items, f.Outage, f.After, cause)
}

// A program has no more batches at once than its hello says; each further batch waits, and may leave.
func TestAProgramHasAsManyBatchesAsItsHelloSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inHand, end := make(chan string, 9), make(chan struct{})
		c := connect(t, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			inHand <- b.LeaseToken
			<-end
			return nil
		}), HostOptions{}, ProgramOptions{Batches: 2})
		outcomes := make(chan error, 9)
		leaving, leave := context.WithCancelCause(t.Context())
		for i := range 4 {
			b, ctx := orders(), t.Context()
			b.LeaseToken = fmt.Sprint(i)
			if i == 3 {
				ctx = leaving
			}
			go func() { outcomes <- c.Handle(ctx, b) }()
			synctest.Wait()
		}
		if len(inHand) != 2 {
			t.Errorf("the program has %d batches, want 2", len(inHand))
		}
		leave(feed.ErrLeaseLost)
		err := <-outcomes
		if f, ok := errors.AsType[*feed.Failure](err); !errors.Is(err, feed.ErrLeaseLost) || !ok || !f.Outage {
			t.Errorf("a batch that waits ends with %v, want lease lost, and no change at fault", err)
		}
		close(end)
		for range 3 {
			if err := <-outcomes; err != nil {
				t.Error(err)
			}
		}
		if len(inHand) != 3 {
			t.Errorf("the program had %d batches, want 3", len(inHand))
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// A canceled batch ends with the cause, and the host returns when the program has given it up, not before.
func TestACanceledBatchIsGivenUp(t *testing.T) {
	for _, cause := range []error{feed.ErrLeaseLost, feed.ErrHandlerTimeout, feed.ErrStopped} {
		synctest.Test(t, func(t *testing.T) {
			var told error
			c := connect(t, feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
				<-ctx.Done()
				told = context.Cause(ctx)
				time.Sleep(2 * time.Second)
				return ctx.Err()
			}), HostOptions{Patience: func(Cause) time.Duration { return 3 * time.Second }}, ProgramOptions{})
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			began := time.Now()
			err := c.Handle(ctx, orders())
			if took := time.Since(began); !errors.Is(err, cause) || told != cause || took != 3*time.Second {
				t.Errorf("got %v after %v, and the program heard of %v, want %v after 3s", err, took, told, cause)
			}
			if err := c.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a program has handled is handled, also if the answer crosses a cancel.
func TestABatchThatIsDoneInSpiteOfACancelIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			<-ctx.Done()
			return nil
		}), HostOptions{}, ProgramOptions{})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(feed.ErrStopped) })
		if err := c.Handle(ctx, orders()); err != nil {
			t.Error(err)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// If a program does not heed a cancel, the connection ends, so that its process can be killed.
func TestAProgramThatHeedsNoCancelLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		c := connect(t, feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			<-end
			return nil
		}), HostOptions{Patience: func(Cause) time.Duration { return 3 * time.Second }}, ProgramOptions{Batches: 2})
		other := make(chan error, 1)
		go func() { other <- c.Handle(t.Context(), orders()) }()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(feed.ErrLeaseLost) })
		began := time.Now()
		if err := c.Handle(ctx, orders()); !errors.Is(err, ErrNotHeeded) || time.Since(began) != 4*time.Second {
			t.Errorf("got %v after %v, want not heeded after 4s", err, time.Since(began))
		}
		if err := <-other; !errors.Is(err, ErrNotHeeded) || c.Left() != 2 {
			t.Errorf("the other batch of %d ends with %v", c.Left(), err)
		}
		if err := c.Handle(t.Context(), orders()); !errors.Is(err, ErrNotSent) {
			t.Errorf("the next batch ends with %v, want not sent", err)
		}
		close(end)
		<-c.served
	})
}

// A batch whose lease is lost before the program reads it is never written: the process may have been suspended.
func TestABatchOfALostLeaseIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fromHost, toProgram := io.Pipe()
		fromProgram, toHost := io.Pipe()
		connected := make(chan *Host, 1)
		go func() {
			h, err := Connect(t.Context(), fromProgram, toProgram, HostOptions{})
			if err != nil {
				t.Error(err)
			}
			connected <- h
		}()
		r := bufio.NewReader(fromHost)
		hello, _ := r.ReadString('\n')
		fmt.Fprintln(toHost, `{"type":"hello","version":1,"batches":2}`)
		h := <-connected
		first := make(chan error, 1)
		go func() { first <- h.Handle(t.Context(), orders()) }() // fills the pipe
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		second := make(chan error, 1)
		go func() { second <- h.Handle(ctx, orders()) }()
		synctest.Wait()
		cancel(feed.ErrLeaseLost)
		synctest.Wait()
		batch, _ := r.ReadString('\n')
		if err := <-second; !errors.Is(err, feed.ErrLeaseLost) {
			t.Errorf("got %v, want lease lost", err)
		}
		fmt.Fprintln(toHost, `{"type":"done","id":1}`)
		if err := <-first; err != nil {
			t.Error(err)
		}
		go h.Close()
		rest, _ := io.ReadAll(r)
		if !strings.Contains(hello, `"hello"`) || !strings.Contains(batch, `"id":1,`) || len(rest) > 0 {
			t.Errorf("the program has read %s%sand then %s", hello, batch, rest)
		}
		toHost.Close()
	})
}

// Each way to break the contract ends the connection, and says the member, the value and what is correct.
func TestABrokenContractIsTold(t *testing.T) {
	const hello = `{"type":"hello","version":1}`
	for _, tt := range []struct{ name, says, want string }{
		{"no JSON", hello + "\nhandled!", `want a JSON object on a line (invalid character 'h' looking for`},
		{"quoted", hello + "\nhandled!", `, in the message handled!`},
		{"no object", hello + "\n7", "want a JSON object on a line, and not a JSON number"},
		{"no list", hello + "\n" + `{"type":"failed","id":1,"items":{}}`, "items is a JSON object: want an array"},
		{"no item", hello + "\n" + `{"type":"failed","id":1,"items":[1]}`, "items is a JSON number: want an object"},
		{"half a batch", hello + "\n" + `{"type":"done","id":1.5}`, "id is a JSON number 1.5: want a whole number"},
		{"no type", hello + "\n{}", "type is missing: want hello, done, failed"},
		{"an unknown type", hello + "\n" + `{"type":"Done","id":1}`, `type is "Done": want hello, done`},
		{"a wrong type", hello + "\n" + `{"type":"done","id":"1"}`, "id is a JSON string: want a whole number"},
		{"no id", hello + "\n" + `{"type":"done"}`, "id is 0: want the id of the batch"},
		{"another id", hello + "\n" + `{"type":"done","id":7}`, "the program has no batch 7: want one answer for each"},
		{"two answers", hello + "\n" + `{"type":"done","id":1}` + "\n" + `{"type":"done","id":1}`, "has no batch 1"},
		{"no hello", `{"type":"done","id":1}`, `type is "done": want hello first`},
		{"two hellos", hello + "\n" + hello, "a second hello"},
		{"another version", `{"type":"hello","version":2}`, "version is 2: this host speaks 1"},
		{"no version", `{"type":"hello"}`, "version is 0: this host speaks 1"},
		{"too many batches", `{"type":"hello","version":1,"batches":10001}`, "batches is 10001: want 1 to 10000"},
		{"no batches", `{"type":"hello","version":1,"batches":-1}`, "batches is -1"},
		{"a short heartbeat", `{"type":"hello","version":1,"heartbeat":0.01}`, "heartbeat is 0.01: want seconds"},
		{"a negative heartbeat", `{"type":"hello","version":1,"heartbeat":-1}`, "heartbeat is -1"},
		{"an index", hello + "\n" + `{"type":"failed","id":1,"items":[{"index":3}]}`, "index is 3: the batch has 3"},
		{"a negative index", hello + "\n" + `{"type":"failed","id":1,"items":[{"index":-1}]}`, "index is -1"},
		{"no index", hello + "\n" + `{"type":"failed","id":1,"items":[{"error":"x"}]}`, "has no index"},
		{
			"an index twice", hello + "\n" + `{"type":"failed","id":1,"items":[{"index":1},{"index":1}]}`,
			"index 1 is in items twice",
		},
		{"more than all", hello + "\n" + `{"type":"failed","id":1,"done":4}`, "done is 4, and the batch has 3 changes"},
		{"all", hello + "\n" + `{"type":"failed","id":1,"done":3}`, "done is 3, and the batch has 3 changes"},
		{"less than none", hello + "\n" + `{"type":"failed","id":1,"done":-1}`, "done is -1"},
		{"both", hello + "\n" + `{"type":"failed","id":1,"done":1,"items":[{"index":1}]}`, "done and items are set"},
		{"a long pause", hello + "\n" + `{"type":"failed","id":1,"after":1e9}`, "after is 1e+09: want seconds, from 0"},
		{"a negative pause", hello + "\n" + `{"type":"failed","id":1,"after":-1}`, "after is -1"},
		{"a checkpoint", hello + "\n" + `{"type":"checkpoint","id":1}`, "a checkpoint without --manual"},
		{"a checkpoint of no batch", hello + "\n" + `{"type":"checkpoint","id":7}`, "there was no batch 7"},
		{"a long line", hello + "\n" + strings.Repeat("x", maxMessage+1<<20), "a message is longer than 16 MB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fromHost, toProgram := io.Pipe()
				fromProgram, toHost := io.Pipe()
				said := make(chan string, 1)
				go func() { // the program: it says its lines when it has read the hello and, after a hello, the batch
					r := bufio.NewReader(fromHost)
					_, _ = r.ReadString('\n')
					lines := strings.SplitN(tt.says, "\n", 2)
					fmt.Fprintln(toHost, lines[0])
					if len(lines) > 1 {
						_, _ = r.ReadString('\n')
						fmt.Fprintln(toHost, lines[1])
					}
					rest, _ := io.ReadAll(r)
					said <- string(rest)
				}()
				h, err := Connect(t.Context(), fromProgram, toProgram, HostOptions{})
				if err == nil {
					_ = h.Handle(t.Context(), orders()) // done, in two of the cases
					<-h.Done()
					err = h.Err()
				}
				fromProgram.Close()
				var told struct{ Type, Error string }
				text := <-said
				wrong := json.Unmarshal([]byte(text), &told)
				if !errors.As(err, new(*BreachError)) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got  %v\nwant %s", err, tt.want)
				}
				if wrong != nil || told.Type != "error" || told.Error != err.Error() {
					t.Errorf("the program is told %s, %v", text, wrong)
				}
			})
		})
	}
}

// With Manual, the handler confirms, in any order; more than once is no mistake.
func TestAProgramConfirmsByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*feed.Batch
		c := connect(t, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			got = append(got, b)
			return nil
		}), HostOptions{Manual: true}, ProgramOptions{})
		confirmed := make([]int, 4)
		refuse := errors.New("lease lost")
		for i := range confirmed {
			b := orders()
			b.OnCheckpoint(func(context.Context) error {
				if i == 3 {
					return refuse
				}
				confirmed[i]++
				return nil
			})
			if err := c.Handle(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		// The processor is asked once for each batch, also for one that came before a confirmed one.
		for _, i := range []int{2, 0, 2, 0, 3} {
			err, want := got[i].Checkpoint(t.Context()), ""
			if i == 3 {
				want = "lease lost"
			}
			if (err == nil) != (want == "") || err != nil && err.Error() != want {
				t.Errorf("batch %d: got %v, want %q", i, err, want)
			}
		}
		if !slices.Equal(confirmed, []int{1, 0, 1, 0}) {
			t.Errorf("the batches were confirmed %v times", confirmed)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// A host forgets the oldest of very many batches that are not confirmed, and says so.
func TestABatchThatIsNeverConfirmedIsForgotten(t *testing.T) {
	var u unconfirmed
	for id := range int64(maxUnsure + 2) {
		u.add(id+1, orders())
	}
	if len(u.batches) != maxUnsure || u.lost != 2 || u.batches[2] != nil || u.batches[3] == nil ||
		u.batches[3].Changes != nil {
		t.Errorf("%d batches are kept, and %d forgotten", len(u.batches), u.lost)
	}
	synctest.Test(t, func(t *testing.T) {
		var got *feed.Batch
		c := connect(t, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			got = b
			return nil
		}), HostOptions{Manual: true}, ProgramOptions{})
		b := orders()
		b.OnCheckpoint(func(context.Context) error { return nil })
		if err := c.Handle(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.unsure = unconfirmed{lost: 1}
		c.mu.Unlock()
		if err := got.Checkpoint(t.Context()); err == nil || !strings.Contains(err.Error(), "too old") {
			t.Errorf("got %v", err)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// A program that has announced heartbeats and is silent is reported, once, and once more when it answers.
func TestASilentProgramIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toProgram, fromHost := io.Pipe()
		toHost, fromProgram := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, toProgram) }()
		go fmt.Fprintln(fromProgram, `{"type":"hello","version":1,"heartbeat":2}`)
		reported := make(chan time.Duration, 9)
		h, err := Connect(t.Context(), toHost, fromHost, HostOptions{
			Silent: func(since time.Duration) { reported <- since },
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			time.Sleep(5 * time.Second)
			fmt.Fprintln(fromProgram, `{"type":"heartbeat"}`)
		}
		synctest.Wait()
		if len(reported) != 0 {
			t.Errorf("reported %v of a program that is not silent", <-reported)
		}
		time.Sleep(20 * time.Second)
		for range 3 {
			fmt.Fprintln(fromProgram, `{"type":"heartbeat"}`)
			synctest.Wait()
		}
		close(reported)
		var all []time.Duration
		for since := range reported {
			all = append(all, since)
		}
		if want := []time.Duration{6 * time.Second, 0}; !slices.Equal(all, want) {
			t.Errorf("reported %v, want %v", all, want)
		}
		h.Close()
		fromProgram.Close()
	})
}

func TestAProgramBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		c := connect(t, feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil }),
			HostOptions{Silent: func(time.Duration) { silent.Store(true) }}, ProgramOptions{Heartbeat: time.Second})
		time.Sleep(time.Minute)
		if silent.Load() {
			t.Error("a program that beats is silent")
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// When the host dies, the handlers of the program end as those of a lost lease, and Serve says so.
func TestAProgramEndsWithItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		c := connect(t, feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		}), HostOptions{}, ProgramOptions{})
		outcome := make(chan error, 1)
		go func() { outcome <- c.Handle(t.Context(), orders()) }()
		synctest.Wait()
		c.cut()
		if err := <-c.served; !errors.Is(err, ErrHostGone) || !errors.Is(cause, feed.ErrLeaseLost) {
			t.Errorf("Serve ends with %v and its handler with %v", err, cause)
		}
		if err := <-outcome; !errors.Is(err, ErrEnded) {
			t.Errorf("the batch ends with %v", err)
		}
	})
}

// A program that says no hello in time is no program of this contract.
func TestAHelloIsAwaitedForSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toProgram, fromHost := io.Pipe()
		toHost, fromProgram := io.Pipe()
		go func() { _, _ = io.Copy(io.Discard, toProgram) }()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("not within 1s"))
		defer cancel()
		_, err := Connect(ctx, toHost, fromHost, HostOptions{})
		if err == nil || err.Error() != "wait for the hello of the program: not within 1s" {
			t.Errorf("got %v", err)
		}
		fromProgram.Close()
	})
}
