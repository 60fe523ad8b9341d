//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/contract"
)

// A parent asks its processor about the unit, hears of events, and is told why the processor ends, each over the pipe.
func TestAParentAsksAndHears(t *testing.T) {
	orders := importOrders(t)
	letters := strings.Replace(orders, "#orders", "#letters", 1)
	c := startChild(t, orders, "--max-attempts", "1", "--dead-letters", letters)
	unit := new(contract.Unit)
	var mu sync.Mutex
	var heard []string
	served := make(chan error, 1)
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		for i, change := range b.Changes {
			if change.ID == "2" {
				return &feed.Failure{Items: map[int]error{i: feed.Poison(fmt.Errorf("no city"))}}
			}
		}
		return nil
	})
	go func() {
		served <- contract.Serve(t.Context(), c.in, c.out, handler, contract.ProgramOptions{
			Unit: unit, Event: func(e contract.Event) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, strings.TrimSpace(fmt.Sprint(e.Type, " ", e.What, e.Item, e.Code)))
			},
		})
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := unit.CaughtUp(ctx); err != nil {
		t.Fatal(err, &c.said)
	}
	status, err := unit.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if status.Instances != 1 || status.Pending == nil || *status.Pending != 0 || !status.Exact ||
		len(status.Leases) != 1 || status.Leases[0].Owner == nil || status.Leases[0].Position == nil ||
		status.Leases[0].Lag == nil || status.Leases[0].State != "live" {
		text, _ := json.Marshal(status)
		t.Errorf("got %s", text)
	}
	_, _ = c.out.Write([]byte(`{"type":"stop"}` + "\n"))
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the processor ends with %v: %s", err, &c.said)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"ready", "lease acquired", "parked 2", "lease released"} {
		if !slices.Contains(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
	}
}

// A unit that has begun refuses another start: the parent hears the word for that, and what the text says.
func TestAParentHearsWhyItsProcessorEnds(t *testing.T) {
	orders := importOrders(t)
	command(t, "run", "--source", orders, "--name", "mailer", "--create-leases", "--once", "--", "cat")
	c := startChild(t, orders, "--from", "now", "-o", "json")
	err := contract.Serve(t.Context(), c.in, c.out, feed.HandlerFunc(func(context.Context, *feed.Batch) error {
		return nil
	}), contract.ProgramOptions{Event: func(contract.Event) {}})
	ended := c.Wait()
	if err == nil || !strings.Contains(err.Error(), "begin") || ended == nil {
		t.Errorf("Serve returns %v, the processor %v: %s", err, ended, &c.said)
	}
	if !strings.Contains(c.said.String(), `"reason":"start-ignored"`) {
		t.Errorf("the error has no word: %s", &c.said)
	}
}

// A parent without --token-from-program in mind is told what its hello lacks; without --stdio there is no parent.
func TestTokensOfAParentNeedItsOffer(t *testing.T) {
	c := startChild(t, importOrders(t), "--token-from-program", "--source", "http://127.0.0.1:1/shop/orders")
	err := contract.Serve(t.Context(), c.in, c.out, feed.HandlerFunc(func(context.Context, *feed.Batch) error {
		return nil
	}), contract.ProgramOptions{})
	if ended := c.Wait(); ended == nil || !strings.Contains(c.said.String(), "want the member tokens in its hello") {
		t.Errorf("Serve returns %v, the processor %v: %s", err, ended, &c.said)
	}
	var o runOptions
	o.tokens = true
	if err := o.checkContract(false); err == nil || !strings.Contains(err.Error(), "without --stdio") {
		t.Errorf("got %v", err)
	}
}
