package changefeed_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// dotnet plays another processor: it renews the leases that name it, and shows no
// presence. It stops working on a lease when a renewal conflicts.
func (w *world) dotnet(ctx context.Context, name string) (lastHeld map[string]time.Time) {
	lastHeld = map[string]time.Time{}
	leases := w.records(feed.KindLease)
	for i := range leases {
		leases[i].Owner, leases[i].Epoch, leases[i].Expiration = name, "", 0
	}
	for ctx.Err() == nil {
		for i, l := range leases {
			if l.Owner != name {
				continue
			}
			l.Timestamp = time.Now()
			got, err := w.leases.Update(w.t.Context(), l)
			if err != nil {
				leases[i].Owner = "" // lost
				continue
			}
			leases[i] = got
			lastHeld[l.Token] = time.Now()
		}
		select {
		case <-ctx.Done():
		case <-time.After(17 * time.Second):
		}
	}
	return lastHeld
}

// heldByDotNet has another processor hold all leases of a unit, which an instance of ours has
// made whose presence is gone. The end returns when each lease was last renewed.
func (w *world) heldByDotNet(maker string) (end func() (lastHeld map[string]time.Time)) {
	setup := w.run(maker, &tally{}, changefeed.Options{Start: feed.FromBeginning()})
	time.Sleep(time.Second)
	setup.stop(w.t)
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan map[string]time.Time, 1)
	go func() { ended <- w.dotnet(ctx, "net-1") }()
	time.Sleep(5 * time.Minute)
	return func() map[string]time.Time {
		cancel()
		return <-ended
	}
}

func TestAForeignProcessorIsStolenFromWithoutTwoOwners(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		end := w.heldByDotNet("a")
		w.fill(40)
		var mu sync.Mutex // both leases may be begun at once
		begun := map[string]time.Time{}
		y := &tally{before: func(_ context.Context, b *feed.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			if begun[b.LeaseToken].IsZero() {
				begun[b.LeaseToken] = time.Now()
			}
			return nil
		}}
		p := w.run("b", y, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		if owners := w.owners(); owners["b"] != 2 || owners["net-1"] != 2 {
			t.Errorf("owners %v, want two leases each", owners)
		}
		lastHeld := end()
		for token, at := range begun {
			if wait := at.Sub(lastHeld[token]); wait < time.Minute {
				t.Errorf("lease %s was begun %v after its owner's last renewal, which trusts it for 60 s", token, wait)
			}
		}
		if len(begun) != 2 {
			t.Errorf("work begun on %d leases, want 2", len(begun))
		}
		p.stop(t)
	})
}

func TestIdleProgressIsStoredAndEmptyBatchesAreNotDelivered(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if len(b.Changes) == 0 {
				t.Error("an empty batch was delivered")
			}
			return nil
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		for n := range 50 { // one key: the other range stays quiet
			w.put("oslo", "item", n)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		for _, l := range w.records(feed.KindLease) {
			if l.Position.Token != `"50"` {
				t.Errorf("lease %s is at %s, want the head at LSN 50 though it is quiet", l.Token, l.Position)
			}
		}
		p.stop(t)
	})
}

// deafFollower has a feed of leases that never works.
type deafFollower struct{ *docstore.Leases }

func (deafFollower) Follow(context.Context, string) ([]feed.Record, string, time.Time, error) {
	return nil, "", time.Time{}, errCutOff
}

func TestABrokenFeedOfLeasesFallsBackToListing(t *testing.T) {
	inWorld(t, 8, func(t *testing.T, w *world) {
		errs := &errorLog{}
		var stops []func()
		for _, name := range []string{"a", "b"} {
			p, err := changefeed.New(w.orders, deafFollower{w.leases}, &tally{},
				changefeed.Options{Instance: name, Hooks: changefeed.Hooks{Error: errs.add}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			stops = append(stops, func() { cancel(); <-done })
		}
		if took := w.balanced(2); took > 30*time.Second {
			t.Errorf("balanced after %v", took)
		}
		if errs.find(errCutOff) == nil {
			t.Error("the broken feed was not reported")
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func TestRunReturnsWhatCannotMendItself(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		if err := w.db.DeleteContainer(t.Context(), "leases"); err != nil {
			t.Fatal(err)
		}
		if err := w.ends(changefeed.Options{}); !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound: the lease container does not exist", err)
		}
	})
}

func TestAContextThatHasEndedEndsRunAtOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p, err := changefeed.New(w.orders, w.leases, &tally{}, changefeed.Options{Instance: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		if err := p.Run(ctx); err != nil || time.Since(start) > time.Second {
			t.Errorf("Run returned %v after %v", err, time.Since(start))
		}
	})
}

// A Java processor makes a lease under the name of a unit at work. Its range has no lease
// of ours, and gets none; an instance that starts then is refused, since that range would
// stand still.
func TestALeaseOfAJavaProcessorIsLeftAlone(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Second)
		theirs := w.records(feed.KindLease)[0]
		w.raw(fmt.Sprintf(`{"id":"%s..java","LeaseToken":"java","ContinuationToken":%q,"timestamp":"2022-11-15T17:43:34.634427Z",`+
			`"Owner":"host-a","version":1,"feedRange":{"Range":{"min":%q,"max":%q,"isMinInclusive":true,"isMaxInclusive":false}}}`,
			w.prefix(),
			base64.StdEncoding.EncodeToString([]byte(`{"V":1,"Rid":"r","Mode":"INCREMENTAL","StartFrom":{"Type":"LEASE","Etag":"\"9\""}}`)), theirs.Range.Min, theirs.Range.Max))
		if err := w.leases.Delete(t.Context(), theirs); err != nil && !errors.Is(err, feed.ErrConflict) {
			t.Fatal(err)
		}
		for _, l := range w.records(feed.KindLease) {
			if l.Range == theirs.Range && l.Token != "java" {
				if err := w.leases.Delete(t.Context(), l); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(5 * time.Minute)
		if p.errs.find(feed.ErrForeignLease) == nil {
			t.Error("the lease of another kind was not reported")
		}
		for _, l := range w.records(feed.KindLease) {
			if l.Range == theirs.Range && l.Token != "java" {
				t.Errorf("lease %s was made beside that of the Java processor", l.ID)
			}
		}
		p.stop(t)
		err := w.ends(changefeed.Options{})
		if !errors.Is(err, feed.ErrForeignLease) || !strings.Contains(err.Error(), "..java") ||
			!strings.Contains(err.Error(), "another processor name") {
			t.Errorf("an instance that starts now: %v, want ErrForeignLease with the lease and what to do", err)
		}
	})
}
