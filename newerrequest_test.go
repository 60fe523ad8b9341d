package changefeed_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inquiry"
	"github.com/millrace/changefeed/internal/notes"
)

// newerRequest is a request of a later version: what it says is not known, except for the action and whose it is.
type newerRequest map[string]string

func (q newerRequest) Token() string { return "later.newer" }

func (q newerRequest) Anew(others map[string]string) map[string]string {
	all := maps.Clone(others)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, q)
	return all
}

// An instance leaves a request of a later version as it is, except for a note that it does not know the action. The
// caller learns that from a named error. The owner of the key or range says that, and nobody else.
func TestTheCallerLearnsThatTheOwnerIsOfAnOlderVersion(t *testing.T) {
	for name, c := range map[string]struct {
		of  func(w *world) newerRequest
		box bool
	}{
		"about a key": {func(w *world) newerRequest {
			epk, err := w.orders.Locate(t.Context(), feed.Key("oslo"))
			if err != nil {
				t.Fatal(err)
			}
			return newerRequest(notes.Request{Action: "later", EPK: epk, Key: "a later spelling"}.Properties(nil))
		}, true},
		"without a letter box": {func(w *world) newerRequest {
			epk, err := w.orders.Locate(t.Context(), feed.Key("oslo"))
			if err != nil {
				t.Fatal(err)
			}
			return newerRequest(notes.Request{Action: "later", EPK: epk, Key: `["oslo"]`}.Properties(nil))
		}, false},
		"about a range": {func(*world) newerRequest {
			return newerRequest(notes.Control{Action: "later", Min: "80", Max: "FF"}.Properties(nil))
		}, true},
	} {
		inWorld(t, 2, func(t *testing.T, w *world) {
			o := changefeed.Options{OnFailure: changefeed.FailurePolicy{MaxAttempts: 1}}
			if c.box {
				o.OnFailure.DeadLetters = &letterBox{}
			}
			p := w.run("a", &tally{}, o)
			time.Sleep(time.Minute)
			q := c.of(w)
			q["changefeed.later"], q["changefeed.tries"] = "kept", "later 7"
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			asked := make(chan error, 1)
			go func() {
				_, err := inquiry.AskAs(ctx, w.leases, q, "eve")
				asked <- err
			}()
			time.Sleep(50 * time.Second)
			all := w.records(feed.KindRequest)
			if len(all) != 1 {
				t.Fatalf("%s: %d requests, want 1", name, len(all))
			}
			left := maps.Clone(all[0].Properties)
			said := left[notes.WaitsProperty]
			for _, note := range []string{notes.WaitsProperty, notes.UnknownProperty, notes.CallerProperty} {
				delete(left, note)
			}
			if !maps.Equal(left, q) || !strings.Contains(said, `instance a does not know the action "later"`) {
				t.Errorf("%s: the request is %v, %q, want %v as it was", name, left, said, q)
			}
			etag := all[0].ETag
			time.Sleep(9 * time.Second)
			if again := w.records(feed.KindRequest); len(again) != 1 || again[0].ETag != etag {
				t.Errorf("%s: the note is written again and again", name)
			}
			err := <-asked
			if !errors.Is(err, deadletters.ErrUnknownAction) || !errors.Is(err, deadletters.ErrNotServed) ||
				!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "instance a") {
				t.Errorf("%s: the caller learns %v, want that the owner does not know the action", name, err)
			}
			if p.errs.find(feed.ErrBadLease) == nil {
				t.Errorf("%s: the owner has said nothing", name)
			}
			p.stop(t)
			if left := w.records(feed.KindRequest); len(left) != 0 {
				t.Errorf("%s: %v are left", name, left)
			}
		})
	}
}

// The owner of another range says nothing about a request of a later version: who owns the range may know the action.
func TestOnlyTheOwnerOfItsRangeNotesAnUnknownAction(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		q := newerRequest(notes.Control{Action: "later", Min: "80", Max: "FF"}.Properties(nil))
		p := w.run("a", &tally{}, changefeed.Options{MaxLeases: 1})
		time.Sleep(time.Minute)
		leases := w.records(feed.KindLease)
		for _, l := range leases {
			if l.Owner == "a" && l.Range.Min != "" {
				q = newerRequest(notes.Control{Action: "later", Max: l.Range.Min}.Properties(nil))
			}
		}
		record := feed.Record{Kind: feed.KindRequest, Token: q.Token(), Properties: q}
		if _, err := w.leases.Create(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if all := w.records(feed.KindRequest); len(all) != 1 || !maps.Equal(all[0].Properties, q) {
			t.Errorf("the request is %v, want %v", all, q)
		}
		p.stop(t)
	})
}
