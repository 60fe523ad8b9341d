package dispatch

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/instance/instancetest"
)

// someLetters is a letter box that is only read.
type someLetters struct {
	feed.LetterBox
	letters []feed.DeadLetter
}

// Letters implements [feed.LetterBox].
func (b someLetters) Letters(context.Context, feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) {
		for l := range slices.Values(b.letters) {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// Another letter of the key has failed, and the box still shows the letter of the request behind that. The key stays
// held.
func TestALetterThatHasFailedIsSeenBeforeThatOfTheRequest(t *testing.T) {
	d, _ := pageOf(instance.Options{}, 0)
	box := someLetters{letters: []feed.DeadLetter{
		{ID: "1", Disposition: feed.DispositionFailed},
		{ID: "2", Disposition: feed.DispositionFailed},
		{ID: "3", Disposition: feed.DispositionHeld},
	}}
	held, failed, err := d.requests.heldLetters(box, &delivery.Request{Key: `["a"]`, Letter: "2"})
	if len(held) != 1 || !failed || err != nil {
		t.Errorf("%d held letters, another has failed: %v, %v", len(held), failed, err)
	}
}

// A request was put back after its letter was handled, and nothing is left to do. Its caller hears that the letter is
// handled.
func TestARequestThatWasPutBackHearsWhatWasHandledBefore(t *testing.T) {
	of := &request{before: 1}
	if o := of.outcome(&delivery.Request{Letter: "1", Result: delivery.NothingToDo}); o.Result != notes.Handled ||
		o.Count != 1 {
		t.Errorf("outcome %+v, want one that is handled", o)
	}
}

// updated is a lease store that keeps the last update.
type updated struct {
	feed.LeaseStore
	last feed.Record
}

// Update implements [feed.LeaseStore].
func (s *updated) Update(_ context.Context, r feed.Record) (feed.Record, error) {
	s.last = r
	return r, nil
}

// An instance has put a request back, and begins with it again. Now it may end the process, so it counts as a try.
func TestARequestThatWasPutBackCountsWhenItBeginsAgain(t *testing.T) {
	for tries, want := range []int{1, 1, 2} { // by the tries that the record says
		store := &updated{}
		in := instancetest.Idle(t.Context(), store, instance.Options{Concurrency: 1, DeadLetters: someLetters{}})
		d := New(in, in.Hold(feed.Record{Kind: feed.KindLease, Token: "-FF"}), nil)
		q := &request{asked: notes.Request{Action: notes.Retry, Key: "a", Letter: "1", Tries: tries}}
		q.record.Properties = map[string]string{notes.BegunProperty: in.Me.Epoch}
		if err := d.requests.admit(q); err != nil {
			t.Fatal(err)
		}
		if got := notes.ReadRequest(store.last.Properties).Tries; got != want {
			t.Errorf("after %d tries of this instance the record says %d, want %d", tries, got, want)
		}
	}
}

// unlocated is a source that cannot say where keys are.
type unlocated struct{ instancetest.Counted }

var errUnlocated = errors.New("no answer")

// Locate implements [feed.Locator].
func (unlocated) Locate(context.Context, feed.PartitionKey) (string, error) { return "", errUnlocated }

// Nobody knows which child of a split has a held key as long as the source does not answer. So the lease is not
// restored.
func TestALeaseWaitsUntilItsKeysAreLocated(t *testing.T) {
	d, _ := pageOf(instance.Options{}, 0)
	d.in.Source = unlocated{}
	if _, err := (noteReader{d.in, d.held}).mayHave(t.Context(), `["a"]`); !errors.Is(err, errUnlocated) {
		t.Errorf("error %v, want that of the source", err)
	}
}

// oneLetter is a letter box with a single letter.
type oneLetter struct {
	feed.LetterBox
	letter feed.DeadLetter
}

// Letters implements [feed.LetterBox].
func (b *oneLetter) Letters(context.Context, feed.PartitionKey) iter.Seq2[feed.DeadLetter, error] {
	return func(yield func(feed.DeadLetter, error) bool) { yield(b.letter, nil) }
}

// Put implements [feed.LetterBox].
func (b *oneLetter) Put(_ context.Context, l feed.DeadLetter) error {
	b.letter = l
	return nil
}

// A held letter has not failed before. When its handler fails, the letter says since when; a letter that has failed
// already keeps its time.
func TestALetterSaysSinceWhenItFails(t *testing.T) {
	long := time.Unix(1000, 0)
	for was, failed := range map[feed.Disposition]time.Time{feed.DispositionHeld: {}, feed.DispositionFailed: long} {
		d, _ := pageOf(instance.Options{}, 0)
		box := &oneLetter{letter: feed.DeadLetter{ID: "1", Disposition: was, Failed: failed}}
		q := &delivery.Request{Current: asLetter(box.letter), Err: context.DeadlineExceeded}
		if err := d.requests.rewriteLetter(box, q); err != nil {
			t.Fatal(err)
		}
		l := box.letter
		if l.Disposition != feed.DispositionFailed || l.Attempts != 1 || l.Failed.IsZero() ||
			l.Failed.Equal(long) != (was == feed.DispositionFailed) {
			t.Errorf("of %v: %v since %v after %d attempts", was, l.Disposition, l.Failed, l.Attempts)
		}
	}
}

// listed is a lease store with some records.
type listed struct {
	feed.LeaseStore
	records []feed.Record
}

// List implements [feed.LeaseStore].
func (s listed) List(context.Context) ([]feed.Record, time.Time, error) {
	return s.records, time.Now(), nil
}

// Another caller has repeated a request. It is taken over only if no instance has begun with it: otherwise two
// instances would serve it.
func TestARepeatedRequestThatIsBeingServedIsLeftAlone(t *testing.T) {
	of := func(caller string, tries int) feed.Record {
		q := notes.Request{Action: notes.Retry, Key: "a", Letter: "1", Tries: tries}
		return feed.Record{
			ID: "r", State: feed.StateLive,
			Properties: q.Properties(map[string]string{notes.CallerProperty: caller}),
		}
	}
	for tries, want := range []bool{true, false} {
		in := instancetest.Idle(t.Context(), listed{records: []feed.Record{of("second", tries)}},
			instance.Options{Concurrency: 1})
		d := New(in, in.Hold(feed.Record{Kind: feed.KindLease, Token: "-FF"}), nil)
		if _, found := d.requests.findRepeated(t.Context(), of("first", 1)); found != want {
			t.Errorf("after %d tries: found %v, want %v", tries, found, want)
		}
	}
}
