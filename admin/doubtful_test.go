package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// explained returns the explanation of the only lease of a listing.
func explained(t *testing.T, l *Listing) Explanation {
	t.Helper()
	all := l.Explain(nil)
	if len(all) != 1 {
		t.Fatalf("explanations %+v, want one", all)
	}
	return all[0]
}

// foundWords returns the words and grades of the findings.
func foundWords(l *Listing) map[Word]Grade {
	words := map[Word]Grade{}
	for _, f := range l.Findings() {
		words[f.Word] = max(words[f.Word], f.Grade)
	}
	return words
}

// A document may have any word as its state. A word that this version computes is not taken for that.
func TestAStateOfALaterVersionIsNotTakenForOneOfOurs(t *testing.T) {
	now := time.Now()
	for _, word := range []State{StateFree, StateExpired, StatePaused, StateBroken, StateStopped} {
		l := listingOf(now, atWork(now, func(r *feed.Record) {
			r.State, r.Owner, r.Epoch = feed.State(word), "", ""
		}))
		if got := l.Leases[0].State; got != "later "+word {
			t.Errorf("state %q of a document is shown as %q", word, got)
		}
	}
}

// An owner that was killed in a split is not at work for ever.
func TestADeadOwnerOfASplitIsNotAtWork(t *testing.T) {
	now := time.Now()
	for silent, works := range map[time.Duration]bool{30 * time.Second: true, 24 * time.Hour: false} {
		l := listingOf(now, atWork(now.Add(-silent), func(r *feed.Record) { r.State = feed.StateSplitting }))
		_, stopped := foundWords(l)[WordStopped]
		x := explained(t, l)
		if l.IsAtWork() != works || stopped == works || l.Leases[0].IsAbandoned == works ||
			strings.HasPrefix(x.Facts[0], "one owns the lease") != works {
			t.Errorf("after %v: at work %v, findings %v, %q", silent, l.IsAtWork(), foundWords(l), x.Facts)
		}
	}
}

// Nobody is told that there is nothing to do while something is wrong.
func TestWhatIsWrongHasANextStep(t *testing.T) {
	now := time.Now()
	for name, edit := range map[string]func(*Lease){
		"outage":  func(l *Lease) { l.Outage = now },
		"slow":    func(l *Lease) { l.Slow = []feed.SlowBatch{{Since: now}} },
		"too old": func(l *Lease) { l.Stuck, l.Lag, l.Unknown = []feed.Stuck{feed.StuckTooOld}, nil, feed.ErrTooOld },
		"ahead":   func(l *Lease) { l.Stuck, l.Lag, l.Unknown = []feed.Stuck{feed.StuckAhead}, nil, feed.ErrAhead },
	} {
		l := listingOf(now, atWork(now, nil))
		l.Leases[0].Lag, l.Leases[0].Unknown = &changefeed.Lag{}, nil
		if x := explained(t, l); x.Next[0] != "Nothing: the owner is at work." {
			t.Errorf("a lease at work: %q", x.Next)
		}
		edit(&l.Leases[0])
		if x := explained(t, l); strings.HasPrefix(x.Next[0], "Nothing") {
			t.Errorf("%s: %q", name, x.Next)
		}
		if strings.Contains("too old ahead", name) && foundWords(l)[WordUnknown] != GradeFailure {
			t.Errorf("%s: findings %v, want a failure", name, foundWords(l))
		}
	}
}

// A lease of a Java processor is no broken document, and nobody is told to delete it.
func TestALeaseOfAJavaProcessorIsNotBroken(t *testing.T) {
	now := time.Now()
	l := listingOf(now, atWork(now, func(r *feed.Record) { r.Err, r.Epoch = feed.ErrForeignLease, "" }))
	words := foundWords(l)
	if _, broken := words[WordBroken]; broken || words[WordForeign] != GradeWarning || !l.IsAtWork() {
		t.Errorf("findings %v, at work %v: want a foreign lease at work", words, l.IsAtWork())
	}
	for _, next := range explained(t, l).Next {
		if strings.Contains(next, "delete") {
			t.Errorf("the advice is %q", next)
		}
	}
}

// A document that is no lease holds no keys of others.
func TestABrokenLeaseOverlapsNothing(t *testing.T) {
	now := time.Now()
	l := listingOf(now, atWork(now, nil), atWork(now, func(r *feed.Record) { r.ID, r.Err = "other", feed.ErrBadLease }))
	if _, overlap := foundWords(l)[WordOverlap]; overlap {
		t.Errorf("findings %v, want no overlap", foundWords(l))
	}
}

// A listing that was cancelled is an error, and no listing with unknown lags.
func TestACancelledListingIsAnError(t *testing.T) {
	orders, leases := stores(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := leases.Create(ctx, feed.Record{
		Kind: feed.KindLease, Version: 1, Token: "-FF", Range: feed.FullRange(),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(orders, cancelling{leases, cancel}, Options{}).List(ctx); !errors.Is(err, errStop) {
		t.Errorf("got %v, want the cause", err)
	}
}

var errStop = errors.New("stop")

// cancelling is a lease store that cancels its caller after a listing.
type cancelling struct {
	*docstore.Leases
	cancel context.CancelCauseFunc
}

// List implements [feed.LeaseStore].
func (c cancelling) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	defer c.cancel(errStop)
	return c.Leases.List(ctx)
}

// Whoever opened a unit without its container hears that from the calls that need the container.
func TestWhatNeedsTheContainerSaysSo(t *testing.T) {
	_, leases := stores(t)
	u := Open(nil, leases, Options{})
	_, failing := u.Failing(t.Context(), All())
	_, skip := u.Skip(t.Context(), Failing{Changes: []FailedChange{{ID: "1"}}})
	_, reset := u.Reset(t.Context(), All(), feed.FromBeginning())
	_, replay := u.ResetKey(t.Context(), feed.Key("oslo"), feed.FromBeginning())
	for name, err := range map[string]error{"Failing": failing, "Skip": skip, "Reset": reset, "ResetKey": replay} {
		if !errors.Is(err, feed.ErrBadRequest) || !errors.Is(err, errNoSource) {
			t.Errorf("%s: %v, want that the container is missing", name, err)
		}
	}
}

// A request about leases is served, withdrawn or expired as one about a key is. A pause lasts until somebody ends it.
func TestARequestAboutLeasesTellsItsState(t *testing.T) {
	now := time.Now()
	served := notes.Outcome{Result: notes.Handled}
	for _, tt := range []struct {
		name, action string
		edit         func(*feed.Record)
		want         RequestState
	}{
		{"asked", notes.Reset, func(*feed.Record) {}, RequestAsked},
		{"served", notes.Reset, func(r *feed.Record) {
			r.State, r.Properties = feed.StateRetired, served.Properties(r.Properties)
		}, RequestServed},
		{"withdrawn", notes.Reset, func(r *feed.Record) { r.State = feed.StateRetired }, RequestWithdrawn},
		{"expired", notes.Reset, func(r *feed.Record) { r.TTL = time.Minute }, RequestExpired},
		{"not expired yet", notes.Reset, func(r *feed.Record) { r.TTL = 5 * time.Minute }, RequestAsked},
		{"paused", notes.Pause, func(*feed.Record) {}, RequestAsked},
		{"resumed", notes.Pause, func(r *feed.Record) {
			r.State, r.TTL = feed.StateRetired, time.Minute
		}, RequestWithdrawn},
	} {
		r := feed.Record{
			Kind: feed.KindRequest, Token: tt.name, Updated: now.Add(-2 * time.Minute), State: feed.StateLive,
			Properties: notes.Control{Action: tt.action, Max: "FF", By: "ann", Why: "a test"}.Properties(nil),
		}
		tt.edit(&r)
		q := describeRequest(r, now)
		said := strings.Join(q.Notes, "; ")
		if q.State != tt.want || q.By != "ann" || q.Reason != "a test" || !strings.HasSuffix(said, "by ann; a test") {
			t.Errorf("%s: state %s, by %q because %q, notes %q; want state %s", tt.name, q.State, q.By, q.Reason, said,
				tt.want)
		}
	}
}
