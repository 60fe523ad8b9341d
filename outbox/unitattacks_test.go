package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// What somebody who did not write them found wrong with units of work.

// script is a store whose n-th request (from 1) is refused or whose answer is lost.
type script struct {
	feed.Committer
	n    int
	drop map[int]bool // request does not arrive
	lose map[int]bool // answer does not arrive
}

func (s *script) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	s.n++
	n := s.n
	if s.drop[n] {
		return nil, errLost
	}
	r, err := s.Committer.Commit(ctx, key, writes)
	if s.lose[n] {
		return nil, errLost
	}
	return r, err
}

func TestLostAnswersInEveryOrderDoubleNothing(t *testing.T) {
	contacts, _ := open(t)
	for mask := range 1 << 6 {
		for _, etag := range []bool{true, false} {
			for _, drop := range []bool{true, false} {
				id := fmt.Sprint("c", mask, etag, drop)
				d := add(t, contacts, id, "A")
				if !etag {
					d.ETag = ""
				}
				lost := map[int]bool{}
				for i := range 6 {
					if mask>>i&1 == 1 {
						lost[i+1] = true
					}
				}
				s := &script{Committer: contacts, lose: lost}
				if drop {
					s.drop = map[int]bool{}
					for i := range lost {
						if i > 1 {
							s.drop[i] = true
						}
					}
					s.lose = map[int]bool{1: lost[1]}
				}
				d.Data.rename("B")
				u := outbox.NewUnit(s, outbox.Options{})
				u.Replace(d)
				var errs []error
				for range 12 {
					err := u.Commit(t.Context())
					if err == nil {
						break
					}
					errs = append(errs, err)
					if !errors.Is(err, errLost) {
						break
					}
				}
				got := actions(stored(t, contacts, id))
				if len(got) != 2 || len(errs) > 0 && !errors.Is(errs[len(errs)-1], errLost) {
					t.Errorf("lost %v drop %v etag %v: events %q, errors %v", lost, drop, etag, got, errs)
				}
			}
		}
	}
}

func TestADeleteWhoseAnswerIsLostIsDone(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, outbox.Options{})
	u.Delete(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Errorf("it was stored: %v", err)
	}
}

func TestADocumentAtTheLimitIsIntact(t *testing.T) {
	contacts, _ := open(t) // whose check at the end is what this is about
	for _, total := range []int{
		2<<20 - 400, 2<<20 - 300, 2<<20 - 250, 2<<20 - 200, 2<<20 - 150, 2<<20 - 130,
		2<<20 - 120, 2<<20 - 110, 2<<20 - 100, 2<<20 - 90, 2<<20 - 60, 2<<20 - 30, 2 << 20,
	} {
		id := fmt.Sprint("c", total)
		d := docOf(id, &contact{Name: strings.Repeat("x", total)})
		u := outbox.NewUnit(contacts, outbox.Options{})
		u.Create(d)
		err := u.Commit(t.Context())
		if err != nil && !errors.Is(err, outbox.ErrTooLarge) {
			t.Errorf("%d: not ErrTooLarge: %v", total-2<<20, err)
		}
		if err == nil {
			if _, err := outbox.Load[*contact](t.Context(), contacts, id, "contact", id); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAUnitIsRecognizedWhenItsEventIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		contacts, _ := open(t)
		d := add(t, contacts, "c1", "A")
		u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}},
			outbox.Options{EventTTL: time.Second})
		d.Data.rename("B")
		u.Replace(d)
		if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		if err := u.Commit(t.Context()); err != nil {
			t.Errorf("it was stored: %v", err)
		}
	})
}

func TestALargeDocumentIsPatchedAndReopened(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "contacts", Paths: []string{"/partitionKey"}})
	if err != nil {
		t.Fatal(err)
	}
	d := docOf("c1", &contact{Name: strings.Repeat("x", 2<<20-150)})
	u := outbox.NewUnit(c, outbox.Options{})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	read, err := outbox.Load[*contact](t.Context(), c, "c1", "contact", "c1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		read.Data.Name = read.Data.Name[1:]
		u = outbox.NewUnit(c, outbox.Options{})
		u.Replace(read)
		if err := u.Commit(t.Context()); err != nil {
			t.Errorf("replace %d: %.200v", i, err)
		}
	}
	_, err = c.Commit(t.Context(), feed.Key("c1"),
		[]feed.Write{{
			Op: feed.WritePatch, ID: "c1",
			Patch: []feed.PatchOp{{Op: "set", Path: "/ttl", Value: []byte("60")}},
		}})
	if err != nil {
		t.Errorf("patch of its ttl: %.200v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	db, err = docstore.Open(dir, docstore.Options{NoSync: true})
	if err != nil {
		t.Fatalf("reopen: %v", err)
	}
	defer db.Close()
	if err := db.Check(); err != nil {
		t.Error(err)
	}
	var b strings.Builder
	if err := db.BackupTo(t.Context(), &b); err != nil {
		t.Errorf("backup: %v", err)
	} else if err := docstore.ReceiveBackup(t.Context(), strings.NewReader(b.String()), dir+"2"); err != nil {
		t.Errorf("receive backup: %v", err)
	}
}

func TestAnObjectWithoutDataIsRefused(t *testing.T) {
	contacts, _ := open(t)
	if _,
		err := contacts.Create(t.Context(),
		[]byte(`{"id":"c1","partitionKey":"c1","type":"contact","data":null}`)); err != nil {
		t.Fatal(err)
	}
	if d, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1"); err == nil ||
		!strings.Contains(err.Error(), "it has none") {
		t.Errorf("loaded %+v, %v", d, err)
	}
	none := &outbox.Doc[*contact]{ID: "c1", PartitionKey: "c1", Type: "contact"}
	for name, track := range map[string]func(*outbox.Unit, outbox.Document){
		"create":  (*outbox.Unit).Create,
		"replace": (*outbox.Unit).Replace,
	} {
		u := outbox.NewUnit(contacts, outbox.Options{})
		track(u, none)
		if err := u.Commit(t.Context()); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("%s of an object without data: got %v", name, err)
		}
	}
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Delete(none) // which needs none
	if err := u.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestASecondMessageIsRememberedToo(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, outbox.Options{})
	u.Once("c1", "m1", time.Hour)
	d.Data.rename("B")
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	u.Once("c1", "m2", time.Hour)
	d.Data.rename("C")
	u.Replace(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, d := range stored(t, contacts, "c1") {
		if d["type"] == "inbox" {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d inbox", n)
	}
}

func TestWhatCannotBeKnownAnyMoreIsSaid(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(&script{Committer: contacts, lose: map[int]bool{1: true}}, outbox.Options{})
	d.Data.Name = "B"
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	o, _ := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1")
	v := outbox.NewUnit(contacts, outbox.Options{})
	o.Data.Name += "C"
	v.Replace(o)
	if err := v.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second attempt would be another unit, and its refusal say nothing of this one
		err := u.Commit(t.Context())
		if unknown, ok := errors.AsType[*outbox.UnknownError](err); !ok || !unknown.IsFinal ||
			errors.Is(err, feed.ErrPrecondition) {
			t.Errorf("got %v, want that it may have been stored", err)
		}
		if again := u.Settle(t.Context()); again != err {
			t.Errorf("Settle returns %v, want what Commit returned", again)
		}
	}
}

func TestWhatIsRecordedSinceIsWritten(t *testing.T) {
	for name, since := range map[string]func(c *contact){
		"another event": func(c *contact) {
			c.describe("since")
		}, "one of the same name": func(c *contact) { c.rename("C") },
	} {
		contacts, _ := open(t)
		d := add(t, contacts, "c1", "A")
		s := &script{Committer: contacts, lose: map[int]bool{1: true}}
		u := outbox.NewUnit(s, outbox.Options{})
		d.Data.rename("B")
		u.Replace(d)
		if err := u.Commit(t.Context()); !errors.Is(err, errLost) {
			t.Fatal(err)
		}
		since(d.Data)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := actions(stored(t, contacts, "c1")); len(got) != 3 {
			t.Errorf("%s: Commit returned nil, events stored %q, still recorded %q", name, got, d.Data.events())
		}
	}
}

func TestAUnitIsEmptyAfterACommitOfNothing(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Keep(d)
	for range 2 { // the second time d has an event, and is tracked no more
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Data.rename("B")
	}
	if got := actions(stored(t, contacts, "c1")); len(got) != 1 {
		t.Errorf("stored are %q, want the created event alone", got)
	}
}

func TestADeletedObjectIsCreatedAnew(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	for _, track := range []func(*outbox.Unit, outbox.Document){(*outbox.Unit).Delete, (*outbox.Unit).Create} {
		u := outbox.NewUnit(contacts, outbox.Options{})
		track(u, d)
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if read, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1"); err != nil ||
		read.ETag != d.ETag {
		t.Errorf("read %+v, %v; want it with the ETag %s", read, err, d.ETag)
	}
}

func TestAnObjectThatSomebodyHasCreatedAnewIsNotOverwritten(t *testing.T) {
	contacts, _ := open(t)
	d := add(t, contacts, "c1", "A")
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Delete(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(t, contacts, "c1", "theirs")
	u.Replace(d)
	if err := u.Commit(t.Context()); !errors.Is(err, feed.ErrPrecondition) {
		t.Errorf("a replacement of an object that was deleted, and created by somebody else: %v", err)
	}
}

func TestAnObjectThatIsLoadedKeepsItsTimeToLive(t *testing.T) {
	contacts, _ := open(t)
	d := docOf("c1", newContact("A"))
	d.TTL = 3600
	u := outbox.NewUnit(contacts, outbox.Options{})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	read, err := outbox.Load[*contact](t.Context(), contacts, "c1", "contact", "c1")
	if err != nil {
		t.Fatal(err)
	}
	read.Data.rename("B")
	u.Replace(read)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, doc := range stored(t, contacts, "c1") {
		if doc["type"] == "contact" && doc["ttl"] != 3600.0 {
			t.Errorf("the object has ttl %v, want that which it was loaded with", doc["ttl"])
		}
	}
}

func TestTimesToLiveAtTheirLimits(t *testing.T) {
	for ttl, want := range map[time.Duration]float64{
		math.MaxInt64: math.MaxInt32, 200 * 365 * 24 * time.Hour: math.MaxInt32, time.Nanosecond: 1,
		1500 * time.Millisecond: 2,
	} {
		contacts, _ := open(t)
		u := outbox.NewUnit(contacts, outbox.Options{EventTTL: ttl})
		u.Create(docOf("c1", newContact("A")))
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := stored(t, contacts, "c1")[1]["ttl"]; got != want {
			t.Errorf("%v: ttl %v, want %v", ttl, got, want)
		}
	}
}

func TestAnObjectIsStoredAsItIsAtTheCommit(t *testing.T) {
	for _, how := range []string{"replace", "keep"} {
		contacts, _ := open(t)
		add(t, contacts, "c1", "A")
		d, err := outbox.Load[contact](t.Context(), contacts, "c1", "contact", "c1")
		if err != nil {
			t.Fatal(err)
		}
		u := outbox.NewUnit(contacts, outbox.Options{})
		if how == "keep" {
			u.Keep(d)
		} else {
			u.Replace(d)
		}
		d.Data.rename("B")
		if err := u.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		read, err := outbox.Load[contact](t.Context(), contacts, "c1", "contact", "c1")
		if err != nil {
			t.Fatal(err)
		}
		if events := actions(stored(t, contacts, "c1")); read.Data.Name != "B" {
			t.Errorf("%s: the object is still %q, and its events are %q", how, read.Data.Name, events)
		}
	}
}

// Random histories of a unit whose requests and answers are lost: each event is stored once.
func TestUnitEqualsItsModel(t *testing.T) {
	contacts, _ := open(t)
	for seed := range 200 {
		id := fmt.Sprint("m", seed)
		rnd := uint64(seed)*2654435761 + 12345
		next := func(n int) int {
			rnd = rnd*6364136223846793005 + 1442695040888963407
			return int(rnd >> 33 % uint64(n))
		}
		flaky := committerFunc(func(ctx context.Context, key feed.PartitionKey, w []feed.Write) ([]feed.Result, error) {
			switch next(5) {
			case 0:
				return nil, errLost
			case 1:
				_, _ = contacts.Commit(ctx, key, w) // stored or not, nobody hears of it
				return nil, errLost
			case 2:
				if next(3) == 0 {
					return nil, feed.ErrThrottled
				}
			}
			return contacts.Commit(ctx, key, w)
		})
		d := docOf(id, newContact("A"))
		u := outbox.NewUnit(flaky, outbox.Options{})
		u.Create(d)
		done := 0
		for i := range 8 {
			if i > 0 {
				d.Data.RecordAlso(nameUpdated{fmt.Sprint(i)})
				d.Data.Name = fmt.Sprint(i)
				u.Replace(d)
			}
			var err error
			for range 100 {
				if err = u.Commit(t.Context()); err == nil || !errors.Is(err, outbox.ErrUnknown) &&
					!errors.Is(err, feed.ErrThrottled) {
					break
				}
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
			done++
		}
		if n := len(actions(stored(t, contacts, id))); n != done {
			t.Errorf("seed %d: %d commits, %d events", seed, done, n)
		}
	}
}
