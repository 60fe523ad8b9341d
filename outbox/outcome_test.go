package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// readsFail is a store that loses the answer to the first batch, and whose next reads fail.
type readsFail struct {
	feed.Committer
	sent  int
	reads []error // what the next reads answer
}

func (s *readsFail) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if writes[0].Op == feed.WriteRead && len(s.reads) > 0 {
		err := s.reads[0]
		s.reads = s.reads[1:]
		return nil, err
	}
	results, err := s.Committer.Commit(ctx, key, writes)
	if s.sent++; s.sent == 1 {
		return nil, errLost
	}
	return results, err
}

var sentinels = []error{
	feed.ErrPrecondition, feed.ErrConflict, feed.ErrNotFound, feed.ErrThrottled,
	feed.ErrBadRequest, feed.ErrForbidden,
}

func TestARefusalIsNotReportedWhileTheOutcomeIsUnknown(t *testing.T) {
	for _, failure := range append([]error{errLost, context.DeadlineExceeded}, sentinels[3:]...) {
		for name, track := range map[string]func(u *outbox.Unit, fresh, old *outbox.Doc[*contact]){
			"create":  func(u *outbox.Unit, fresh, _ *outbox.Doc[*contact]) { u.Create(fresh) },
			"replace": func(u *outbox.Unit, _, old *outbox.Doc[*contact]) { old.Data.rename("B"); u.Replace(old) },
			"delete":  func(u *outbox.Unit, _, old *outbox.Doc[*contact]) { old.Data.rename("B"); u.Delete(old) },
		} {
			t.Run(name+" "+failure.Error(), func(t *testing.T) {
				contacts, _ := open(t)
				fresh, old := docOf("c2", newContact("A")), add(t, contacts, "c1", "A")
				u := outbox.NewUnit(&readsFail{Committer: contacts, reads: []error{failure, failure}}, outbox.Options{})
				track(u, fresh, old)
				for i := range 3 {
					err := u.Commit(t.Context())
					for _, sentinel := range sentinels {
						if errors.Is(err, sentinel) {
							t.Errorf("try %d: the unit is stored, and Commit returns %v, which is %q", i+1, err,
								sentinel)
						}
					}
				}
				if err := u.Commit(t.Context()); err != nil {
					t.Errorf("at the end: %v, want that the unit is stored", err)
				}
			})
		}
	}
}

func TestAfterASuccessNoETagIsMissing(t *testing.T) {
	overwrite := func(t *testing.T, contacts feed.Committer) {
		t.Helper()
		other, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1")
		if err != nil {
			t.Fatal(err)
		}
		other.Data.rename("theirs")
		u := outbox.NewUnit(contacts, outbox.Options{})
		u.Replace(other)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, lost := range map[string]int{"its answer is lost": 1, "its answer has no ETags": 0} {
		t.Run(name, func(t *testing.T) {
			contacts, _ := open(t)
			store := committerFunc(func(ctx context.Context, key feed.PartitionKey, w []feed.Write) ([]feed.Result,
				error,
			) {
				results, err := contacts.Commit(ctx, key, w)
				if lost--; lost == 0 {
					return nil, errLost
				}
				if err == nil && w[0].Op != feed.WriteRead {
					results = make([]feed.Result, len(w))
				}
				return results, err
			})
			d, earlier := docOf("c1", newContact("A")), docOf("c1", &contact{Name: "0"})
			u := outbox.NewUnit(store, outbox.Options{})
			u.Create(earlier)
			u.Create(d)
			err := u.Commit(t.Context())
			overwrite(t, contacts)
			if err != nil {
				err = u.Commit(t.Context())
			}
			if err != nil {
				t.Fatalf("it was stored: %v", err)
			}
			for _, doc := range []*outbox.Doc[*contact]{d, earlier} {
				if doc.ETag == "" {
					t.Error("after the success the ETag is missing")
				}
				doc.Data.rename("ours")
				v := outbox.NewUnit(contacts, outbox.Options{})
				v.Replace(doc)
				if err := v.Commit(t.Context()); !errors.Is(err, feed.ErrPrecondition) {
					t.Errorf("a replacement of what somebody has written since: %v", err)
				}
			}
		})
	}
}

// account is an object that is charged by orders.
type account struct {
	outbox.Recorder
	Charges map[string]int `json:"charges"` // how often by which order
	Notes   int            `json:"notes"`   // of others
}

type charged struct {
	Order string `json:"order"`
}

func (charged) EventName() string { return "Charged" }

// charge is the loop of the documentation: it may be told that an order is charged, that it is not, or that this is
// unknown.
func charge(ctx context.Context, store feed.Committer, id, order string, o outbox.Options, once bool) error {
	for {
		d, err := outbox.Load[*account](ctx, store, id, "account", id)
		if err != nil {
			return err
		}
		d.Data.Charges[order]++
		d.Data.Record(charged{order})
		u := outbox.NewUnit(store, o)
		u.Replace(d)
		if once {
			u.Once(id, order, time.Hour)
		}
		err = u.Commit(ctx)
		if errors.Is(err, outbox.ErrUnknown) {
			err = u.Settle(ctx)
		}
		switch {
		case errors.Is(err, outbox.ErrUnknown): // no word on it, and nothing that is done a second time
			return err
		case errors.Is(err, feed.ErrPrecondition), errors.Is(err, feed.ErrThrottled): // load again, decide again
			continue
		case errors.Is(err, outbox.ErrDuplicate):
			return nil
		}
		return err
	}
}

// errKilled is the end of a process.
var errKilled = errors.New("killed")

// The faults of a request.
const (
	noFault = iota
	requestLost
	answerLost
	throttled
	killedBefore
	killedAfter
	faultKinds
)

// faulty is a store with a fault for each of its first requests, and somebody else who writes after one of them.
type faulty struct {
	feed.Committer
	faults []int
	n      int
	others int // after which request somebody else writes
	other  func()
}

func (s *faulty) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	fault := noFault
	if s.n++; s.n <= len(s.faults) {
		fault = s.faults[s.n-1]
	}
	switch fault {
	case requestLost:
		return nil, errLost
	case throttled:
		return nil, feed.ErrThrottled
	case killedBefore:
		panic(errKilled)
	}
	results, err := s.Committer.Commit(ctx, key, writes)
	if s.n == s.others {
		s.other()
	}
	switch fault {
	case answerLost:
		return nil, errLost
	case killedAfter:
		panic(errKilled)
	}
	return results, err
}

// lived runs a process, which may be killed.
func lived(process func() error) (err error) {
	defer func() {
		if why := recover(); why != nil {
			if err = why.(error); err != errKilled {
				panic(why)
			}
		}
	}()
	return process()
}

func TestTheDocumentedLoopActsOnceWhateverIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := open(t)
		const requests = 3
		worlds, kills := 1, 0
		for range requests {
			worlds *= faultKinds
		}
		for world := range worlds * (requests + 1) {
			faults, code := make([]int, requests), world
			for i := range faults {
				faults[i], code = code%faultKinds, code/faultKinds
			}
			id := fmt.Sprint("a", world)
			create := outbox.NewUnit(contacts, outbox.Options{})
			create.Create(&outbox.Doc[*account]{
				ID: id, PartitionKey: id, Type: "account",
				Data: &account{Charges: map[string]int{}},
			})
			if err := create.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			store := &faulty{
				Committer: contacts, faults: append([]int{noFault}, faults...), others: code + 1,
				other: func() { annotate(t, contacts, id) },
			}
			run := func() error { return charge(t.Context(), store, id, "o1", outbox.Options{}, true) }
			err := lived(run)
			for tries := 0; err != nil && tries < 20; tries++ { // the next process is given the same order
				if errors.Is(err, errKilled) {
					kills++
				}
				err = lived(run)
			}
			events := len(actions(stored(t, contacts, id)))
			d, loaded := outbox.Load[*account](t.Context(), contacts, id, "account", id)
			if err != nil || loaded != nil || d.Data.Charges["o1"] != 1 || events != 1 {
				t.Errorf("faults %v, somebody else after request %d: charged %d times with %d events, error %v, "+
					"want once", faults, code+1, d.Data.Charges["o1"], events, errors.Join(err, loaded))
			}
		}
		if kills < worlds {
			t.Errorf("%d kills, want many", kills)
		}
	})
}

func TestTheDocumentedLoopWithoutAMemoryActsAtMostOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := open(t)
		const requests, kinds = 4, throttled + 1
		worlds := 1
		for range requests {
			worlds *= kinds
		}
		for _, o := range []outbox.Options{{}, {EventTTL: -1}} {
			for world := range worlds * (requests + 1) {
				faults, code := make([]int, requests), world
				for i := range faults {
					faults[i], code = code%kinds, code/kinds
				}
				id := fmt.Sprint("b", o.EventTTL, world)
				create := outbox.NewUnit(contacts, outbox.Options{})
				create.Create(&outbox.Doc[*account]{
					ID: id, PartitionKey: id, Type: "account",
					Data: &account{Charges: map[string]int{}},
				})
				if err := create.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				store := &faulty{
					Committer: contacts, faults: append([]int{noFault}, faults...), others: code + 1,
					other: func() { annotate(t, contacts, id) },
				}
				err := charge(t.Context(), store, id, "o1", o, false)
				d, loaded := outbox.Load[*account](t.Context(), contacts, id, "account", id)
				if loaded != nil {
					t.Fatal(loaded)
				}
				if n := d.Data.Charges["o1"]; n > 1 || n == 0 && err == nil {
					t.Errorf("faults %v, somebody else after request %d: charged %d times, and Commit returned %v",
						faults, code+1, n, err)
				}
			}
		}
	})
}

// annotate is the write of somebody else.
func annotate(t *testing.T, store feed.Committer, id string) {
	t.Helper()
	d, err := outbox.Load[*account](t.Context(), store, id, "account", id)
	if err != nil {
		t.Fatal(err)
	}
	d.Data.Notes++
	u := outbox.NewUnit(store, outbox.Options{})
	u.Replace(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestSettleFindsOutAndWritesNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := open(t)
		lost := 3
		store := committerFunc(func(ctx context.Context, key feed.PartitionKey, w []feed.Write) ([]feed.Result, error) {
			if lost--; lost >= 0 {
				return nil, errLost
			}
			return contacts.Commit(ctx, key, w)
		})
		d := docOf("c1", newContact("A"))
		u := outbox.NewUnit(store, outbox.Options{})
		if err := u.Settle(t.Context()); err != nil {
			t.Errorf("of a unit that was never committed: %v", err)
		}
		u.Create(d)
		if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) || !errors.Is(err, errLost) {
			t.Fatalf("got %v, want that the outcome is unknown because of %v", err, errLost)
		}
		d.Data.rename("B")
		if err := u.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := actions(stored(t, contacts, "c1")); len(got) != 1 {
			t.Errorf("Settle has stored %q, want the created event alone", got)
		}
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := actions(stored(t, contacts, "c1")); len(got) != 2 {
			t.Errorf("after Commit there are %q, want the event that was recorded since as well", got)
		}
	})
}

func TestSettleEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		store := committerFunc(func(context.Context, feed.PartitionKey, []feed.Write) ([]feed.Result, error) {
			asked++
			return nil, errLost
		})
		u := outbox.NewUnit(store, outbox.Options{})
		u.Create(docOf("c1", newContact("A")))
		gone := errors.New("the request is gone")
		ended, end := context.WithCancelCause(t.Context())
		end(gone)
		err := u.Commit(ended)
		if _, ok := errors.AsType[*outbox.NotStoredError](err); !ok || !errors.Is(err, gone) {
			t.Errorf("with an ended context nothing is sent: got %v", err)
		}
		if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
			t.Fatal(err)
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := u.Settle(ctx); !errors.Is(err, outbox.ErrUnknown) {
			t.Errorf("got %v, want that the outcome is unknown", err)
		}
		if took := time.Since(begun); took != time.Minute || asked > 25 {
			t.Errorf("it took %v and %d tries, want a minute and at most 25", took, asked)
		}
		if err := u.Settle(ended); !errors.Is(err, outbox.ErrUnknown) || !errors.Is(err, gone) {
			t.Errorf("got %v, want that the outcome is unknown because the context has ended", err)
		}
	})
}

func TestSettleWaitsForAsLongAsTheStoreAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := open(t)
		answers := []error{errLost, &feed.ThrottledError{After: 30 * time.Second}, &feed.ThrottledError{}}
		store := committerFunc(func(ctx context.Context, key feed.PartitionKey, w []feed.Write) ([]feed.Result, error) {
			if len(answers) > 0 {
				err := answers[0]
				answers = answers[1:]
				return nil, err
			}
			return contacts.Commit(ctx, key, w)
		})
		u := outbox.NewUnit(store, outbox.Options{})
		u.Create(docOf("c1", newContact("A")))
		if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := u.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		// the second pause, since the store asks for none
		if took := time.Since(begun); took != 30*time.Second+100*time.Millisecond {
			t.Errorf("it took %v, want the 30 s that the store has asked for and a pause", took)
		}
	})
}

// writeByAnother writes the object c1 as somebody does who has just loaded it.
func writeByAnother(t *testing.T, contacts feed.Committer) {
	t.Helper()
	other, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1")
	if err != nil {
		t.Fatal(err)
	}
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Replace(other)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// expireType removes the documents of a type, as their time to live does.
func expireType(t *testing.T, contacts *docstore.Container, typ string) {
	t.Helper()
	for _, doc := range stored(t, contacts, "c1") {
		if doc["type"] == typ {
			if err := contacts.Delete(t.Context(), feed.Key("c1"), doc["id"].(string), ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestEventsThatMayHaveExpiredProveNothing(t *testing.T) {
	for name, o := range map[string]outbox.Options{
		"of themselves":             {EventTTL: 2 * time.Second},
		"after they were published": {EventTTL: -1},
	} {
		synctest.Test(t, func(t *testing.T) {
			contacts, _ := open(t)
			d := add(t, contacts, "c1", "A")
			u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, o)
			d.Data.rename("B")
			u.Replace(d)
			if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
				t.Fatal(err)
			}
			expireType(t, contacts, outbox.EventType)
			writeByAnother(t, contacts)
			time.Sleep(time.Minute)
			if err := u.Settle(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
				t.Errorf("events that expire %s: got %v of a unit that is stored", name, err)
			}
		})
	}
}

func TestAMemoryThatHasExpiredProvesNothing(t *testing.T) {
	forgetsMessage(t, 5*time.Second, func(*testing.T, *docstore.Container) {})
}

// forgetsMessage wants that the outcome of a unit that is stored stays unknown when, after a wait, what remembered its
// message for 2 seconds is gone and somebody has written its object.
func forgetsMessage(t *testing.T, wait time.Duration, remove func(t *testing.T, contacts *docstore.Container)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := open(t)
		d := add(t, contacts, "c1", "A")
		u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, outbox.Options{})
		d.Data.Name = "B"
		u.Replace(d)
		u.Once("c1", "m1", 2*time.Second)
		if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
			t.Fatal(err)
		}
		time.Sleep(wait)
		remove(t, contacts)
		writeByAnother(t, contacts)
		if err := u.Settle(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
			t.Errorf("got %v of a unit that is stored", err)
		}
	})
}

func TestARefusalOfTheFirstTryIsCertain(t *testing.T) {
	for _, refusal := range sentinels[3:] {
		refuses := committerFunc(func(context.Context, feed.PartitionKey, []feed.Write) ([]feed.Result, error) {
			return nil, fmt.Errorf("store: %w", refusal)
		})
		u := outbox.NewUnit(refuses, outbox.Options{})
		u.Create(docOf("c1", newContact("A")))
		err := u.Commit(t.Context())
		if _, ok := errors.AsType[*outbox.NotStoredError](err); !ok || !errors.Is(err, refusal) {
			t.Errorf("got %v, want that nothing is stored because of %v", err, refusal)
		}
	}
}

// A client of the store has sent the first batch twice by itself: what it returns is the refusal of the second time.
func TestAnUnreadOutcomeStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := open(t)
		d := add(t, contacts, "c1", "A")
		store := &readsFail{Committer: contacts, sent: 1, reads: []error{errLost}}
		u := outbox.NewUnit(twice{store}, outbox.Options{EventTTL: 2 * time.Second})
		d.Data.rename("B")
		u.Replace(d)
		if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // the event is gone
		writeByAnother(t, contacts)
		if err := u.Settle(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
			t.Errorf("got %v of a unit that is stored", err)
		}
	})
}

// twice is a store that gets each batch of writes twice.
type twice struct{ feed.Committer }

func (s twice) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if writes[0].Op != feed.WriteRead {
		_, _ = s.Committer.Commit(ctx, key, writes)
	}
	return s.Committer.Commit(ctx, key, writes)
}

// What remembers the message is there for ten days, so nobody needs the events as a proof.
func TestAMemoryProvesForLongerThanEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := open(t)
		d := add(t, contacts, "c1", "A")
		other := *d
		u := outbox.NewUnit(&script{Committer: contacts, drop: map[int]bool{1: true}}, outbox.Options{})
		d.Data.rename("B")
		u.Replace(d)
		u.Once("c1", "m1", 0)
		if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
			t.Fatal(err)
		}
		other.Data = &contact{Name: "C"}
		v := outbox.NewUnit(contacts, outbox.Options{})
		v.Replace(&other)
		if err := v.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := u.Settle(t.Context()); !errors.Is(err, feed.ErrPrecondition) || errors.Is(err, outbox.ErrUnknown) {
			t.Errorf("got %v, want that the unit is not stored: nothing remembers its message", err)
		}
	})
}

func TestAnEventOfADeletedObjectIsNotLostWhileTheOutcomeIsUnknown(t *testing.T) {
	for _, lost := range []script{{lose: map[int]bool{1: true}}, {drop: map[int]bool{1: true}}} {
		contacts, _ := open(t)
		d := add(t, contacts, "c1", "A")
		u := outbox.NewUnit(&script{Committer: contacts, lose: lost.lose, drop: lost.drop}, outbox.Options{})
		d.Data.rename("B")
		u.Delete(d)
		if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
			t.Fatal(err)
		}
		d.Data.describe("since")
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		docs := stored(t, contacts, "c1")
		if got := actions(docs); len(docs) != 3 || len(got) != 3 || len(d.Data.Recorded()) > 0 || d.Seq != 3 {
			t.Errorf("Commit returned nil: %d documents, events %q, still recorded %q, seq %d", len(docs), got,
				d.Data.events(), d.Seq)
		}
	}
}

// Three documents of one object are tracked, of which two are as somebody has them who has loaded the object before.
func TestTheNumbersOfEventsNeverGoBack(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}} {
		contacts, _ := open(t)
		d := add(t, contacts, "c1", "A")
		first := *d
		for _, name := range []string{"B", "C"} {
			d.Data.rename(name)
			u := outbox.NewUnit(contacts, outbox.Options{})
			u.Replace(d)
			if err := u.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		old, third := first, first
		old.ETag, third.ETag = "", ""
		old.Data, third.Data = &contact{Name: "D"}, &contact{Name: "E"}
		third.Data.rename("E")
		u := outbox.NewUnit(contacts, outbox.Options{})
		all := []*outbox.Doc[*contact]{d, &old, &third}
		for _, i := range order {
			u.Replace(all[i])
		}
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		var last float64
		for _, doc := range stored(t, contacts, "c1") {
			if doc["type"] == outbox.EventType {
				if seq := doc["seq"].(float64); seq != last+1 {
					t.Errorf("tracked in the order %v: event %v comes after event %v", order, seq, last)
				} else {
					last = seq
				}
			}
		}
		if tracked := all[order[2]]; last != 4 || tracked.Seq != 4 {
			t.Errorf("tracked in the order %v: the last event is %v, and the document says %d, want 4", order, last,
				tracked.Seq)
		}
	}
}

// The document that is tracked last has no ETag, and the one before it has that of an older version.
func TestADocumentWithoutAnETagDoesNotHideThatOfAnother(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	mine := *d
	d.Data.rename("B") // by somebody else
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Replace(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := mine
	again.ETag, again.Data = "", &contact{Name: "C"}
	u = outbox.NewUnit(contacts, outbox.Options{})
	u.Replace(&mine)
	u.Replace(&again)
	if err := u.Commit(t.Context()); !errors.Is(err, feed.ErrPrecondition) {
		t.Errorf("Commit: %v, want %v: the object was written since", err, feed.ErrPrecondition)
	}
}

// Two documents of a new object are tracked, and the first one records an event while the outcome is unknown, or after
// a refusal.
func TestWhatAnyDocumentOfAnObjectRecordsSinceIsWritten(t *testing.T) {
	contacts, _ := open(t)
	store := &script{Committer: contacts, lose: map[int]bool{1: true}}
	first := docOf("c1", newContact("A"))
	second := docOf("c1", &contact{Name: "B"})
	u := outbox.NewUnit(store, outbox.Options{})
	u.Create(first)
	u.Replace(second)
	if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
		t.Fatal(err)
	}
	first.Data.rename("C")
	second.Data.Name = "D"
	for range 2 { // the second one settles nothing
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	docs := stored(t, contacts, "c1")
	if got := actions(docs); len(got) != 2 || len(first.Data.Recorded()) > 0 {
		t.Errorf("the events are %q, and the document still has %q, want that of the creation and that of the rename",
			got, first.Data.events())
	}
	for _, doc := range docs {
		if data := doc["data"].(map[string]any); doc["type"] == "contact" && data["name"] != "D" {
			t.Errorf("the object is stored as %v, want as the document that was tracked last", data)
		}
	}
}

func TestARefusalMakesNoDocumentNew(t *testing.T) {
	contacts, _ := open(t)
	add(t, contacts, "c1", "A")
	first := docOf("c1", newContact("A"))
	second := docOf("c1", &contact{Name: "B"})
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Create(first)
	u.Replace(second)
	if err := u.Commit(t.Context()); !errors.Is(err, feed.ErrConflict) {
		t.Fatal(err)
	}
	if !first.Data.IsNew() || second.Data.IsNew() {
		t.Errorf("after a refusal the first document is new: %v, and the second: %v; want as they were",
			first.Data.IsNew(), second.Data.IsNew())
	}
}

// The store counts a time to live from a time that is cut to a second, so a document may be gone a second early.
func TestADocumentProvesNothingInItsLastSecond(t *testing.T) {
	forgetsMessage(t, 1200*time.Millisecond, func(t *testing.T, contacts *docstore.Container) {
		expireType(t, contacts, "inbox")
	})
}

func TestADeleteOfWhatIsNotThereIsNotStored(t *testing.T) {
	contacts, _ := open(t)
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Delete(docOf("c1", &contact{Name: "A"}))
	err := u.Commit(t.Context())
	if _, ok := errors.AsType[*outbox.NotStoredError](err); !ok || !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("got %v, want that nothing is stored because the document is not found", err)
	}
}

func TestADeleteIsNotStoredWhereTheObjectIsStill(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	other := *d
	u := outbox.NewUnit(&script{Committer: contacts, drop: map[int]bool{1: true}}, outbox.Options{})
	u.Delete(d)
	if err := u.Commit(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
		t.Fatal(err)
	}
	other.Data = &contact{Name: "B"}
	v := outbox.NewUnit(contacts, outbox.Options{})
	v.Replace(&other)
	if err := v.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := u.Settle(t.Context()); !errors.Is(err, outbox.ErrUnknown) {
		t.Errorf("got %v, though the object is there", err)
	}
}
