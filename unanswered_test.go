package changefeed_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A write to a lease store may never be answered. It ends all the same, whoever asked for it, and is asked again.

// unanswered is a lease store that does not answer one write of its kind, once it is armed.
type unanswered struct {
	*hookedStore
	mu    sync.Mutex
	what  string // such as "update lock"
	armed bool
	hung  time.Duration // for which the write was waited for, when that is over
	again bool          // the same was asked after that
}

func (w *world) unanswered(what string) *unanswered {
	s := &unanswered{hookedStore: &hookedStore{Leases: w.leases}, what: what}
	s.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
		if err := s.wait(ctx, "update "+string(l.Kind)); err != nil {
			return l, err
		}
		return w.leases.Update(ctx, l)
	}
	s.delete = func(ctx context.Context, l feed.Record) error {
		if err := s.wait(ctx, "delete "+string(l.Kind)); err != nil {
			return err
		}
		return w.leases.Delete(ctx, l)
	}
	return s
}

func (s *unanswered) wait(ctx context.Context, what string) error {
	s.mu.Lock()
	hangs := s.armed && what == s.what
	s.armed = s.armed && !hangs
	s.again = s.again || s.hung > 0 && what == s.what
	s.mu.Unlock()
	if !hangs {
		return nil
	}
	begun := time.Now()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = time.Since(begun)
	return context.Cause(ctx)
}

func (s *unanswered) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = true
}

// result is for how long the write was waited for, and whether it was asked again.
func (s *unanswered) result() (hung time.Duration, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hung, s.again
}

// leftovers writes what others have left: the lock of an instance that has ended, and a lease that arrived when its
// maker had lost the lock, beside that of the whole range.
func (w *world) leftovers() (late string) {
	w.t.Helper()
	half := feed.FullRange().Cut(2)[1]
	sent := time.Now().UTC()
	for _, l := range []feed.Record{
		{Kind: feed.KindLock, Timestamp: sent},
		{
			Kind: feed.KindLease, Version: 1, Token: half.String(), Range: half, Timestamp: sent,
			Position: feed.Position{Start: feed.FromBeginning()},
			Properties: map[string]string{
				notes.GenerationProperty: "#0", notes.DueProperty: notes.Due{
					By:   sent.Add(-time.Minute),
					Sent: sent,
				}.String(),
			},
		},
	} {
		got, err := w.leases.Create(w.t.Context(), l)
		if err != nil {
			w.t.Fatal(err)
		}
		late = got.ID
	}
	time.Sleep(time.Minute) // the lock has expired
	return late
}

func TestEachWriteThatIsNeverAnsweredEndsAndIsAskedAgain(t *testing.T) {
	for _, c := range []struct {
		what  string
		after time.Duration // of the start; negative is at the stop
		last  bool          // nothing asks again
	}{
		{"update lock", 0, false},
		{"delete lock", 0, true},
		{"update lease", 0, false},
		{"update lease", time.Minute, false},
		{"update lease", -1, true}, // the release
		{"update host", time.Minute, false},
		{"update host", -1, true},
		{"update request", 0, false},
		{"delete lease", 0, false},
	} {
		t.Run(c.what+" "+c.after.String(), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				lsn := w.put("oslo", "bad", 1)
				late := w.leftovers()
				s := w.unanswered(c.what)
				h := &tally{before: func(_ context.Context, b *feed.Batch) error {
					if !b.Redriven && b.Changes[0].ID == "bad" {
						return errHandler
					}
					return nil
				}}
				box := &letterBox{}
				if c.after == 0 {
					s.arm()
				}
				p := w.runWith(w.orders, s, "a", h, changefeed.Options{
					Start:     feed.FromBeginning(),
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 1, DeadLetters: box},
				})
				time.Sleep(5 * time.Minute)
				if c.after > 0 {
					s.arm()
				}
				asking, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
				defer cancel()
				if _, err := deadletters.Redrive(asking, w.orders, w.leases, feed.Key("oslo"),
					letterNamed(lsn, "bad")); err != nil {
					t.Error(err)
				}
				w.put("rome", "good", 1)
				time.Sleep(5 * time.Minute)
				if items, _ := h.items(); items != 2 || box.names() != "" || w.has(late) || w.pending() != 0 {
					t.Errorf("%d of 2 items handled, letters %q, late lease %v, %d pending", items, box.names(),
						w.has(late), w.pending())
				}
				if c.after < 0 {
					s.arm()
				}
				if took := p.took(t); took > 40*time.Second {
					t.Errorf("the stop took %v", took)
				}
				if hung, again := s.result(); hung == 0 || !again && !c.last {
					t.Errorf("%s: waited for %v, asked again: %v", c.what, hung, again)
				}
			})
		})
	}
}
