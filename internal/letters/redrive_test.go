package letters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/usage"
)

// A key is released if its lease says that it is held, or a letter says that it may be.
func TestOnlyAKeyThatIsHeldCanBeReleased(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		t.Fatal(err)
	}
	container, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	leases, err := docstore.NewLeases(t.Context(), container, "mailer", orders)
	if err != nil {
		t.Fatal(err)
	}
	_, err = leases.Create(t.Context(), changefeed.Record{
		Kind: changefeed.KindLease, Token: "-FF", Range: changefeed.FullRange(), Version: 1, Position: changefeed.Position{Token: "5"},
		Properties: map[string]string{"changefeed.held": `{"at":"5","keys":["[\"Rome\"]"]}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	letter := func(city string, d changefeed.Disposition, age time.Duration) changefeed.DeadLetter {
		return changefeed.DeadLetter{Disposition: d, Parked: time.Now().Add(-age), Change: changefeed.Change{PartitionKey: changefeed.Key(city)}}
	}
	letters := []changefeed.DeadLetter{
		letter("Oslo", changefeed.DispositionHeld, time.Hour), letter("Paris", changefeed.DispositionFailed, time.Second),
		letter("London", changefeed.DispositionFailed, time.Hour),
	}
	q := Query{Name: "mailer"}
	for city, held := range map[string]bool{"Rome": true, "Oslo": true, "Paris": true, "London": false, "Roma": false} {
		if err := q.checkHeld(t.Context(), leases, letters, changefeed.Key(city)); (err == nil) != held {
			t.Errorf("%s is held: %v, but: %v", city, held, err)
		}
	}
}

// unserved is a unit without a processor. Its orders are in memory, and its letters in a file.
type unserved struct {
	db     *docstore.DB
	orders *docstore.Container
	leases changefeed.LeaseStore
	Redrive
}

func newUnit(t *testing.T) *unserved {
	t.Helper()
	u := &unserved{Redrive: Redrive{Query: Query{Name: "mailer"}, Letters: Place{File: t.TempDir() + "/letters"}, Wait: time.Minute}}
	var err error
	if u.db, err = docstore.Open("", docstore.Options{InMemory: true}); err != nil {
		t.Fatal(err)
	}
	u.orders = create(t, u.db, "orders", "/city")
	if u.leases, err = docstore.NewLeases(t.Context(), create(t, u.db, "leases", "/id"), "mailer", u.orders); err != nil {
		t.Fatal(err)
	}
	return u
}

// serve runs a processor that holds keys, until the function that it returns is called. It cannot handle the orders that
// are broken.
func (u *unserved) serve(t *testing.T, broken *[]string) (stop func()) {
	t.Helper()
	box, err := deadletters.File(u.Letters.File, "mailer")
	if err != nil {
		t.Fatal(err)
	}
	handler := changefeed.HandlerFunc(func(_ context.Context, b *changefeed.Batch) error {
		for _, c := range b.Changes {
			if slices.Contains(*broken, c.ID) {
				return fmt.Errorf("%s is broken", c.ID)
			}
		}
		return nil
	})
	p, err := changefeed.New(u.orders, u.leases, handler, changefeed.Options{
		Instance: "one", Start: changefeed.FromBeginning(), MaxAttempts: 2, DeadLetters: box, HoldKeys: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() {
		end()
		if err := errors.Join(<-ended, box.Close()); err != nil {
			t.Error(err)
		}
	}
}

// An order of Paris fails, and the next one is held until the first is handled.
func TestAProcessorHandlesLettersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		defer u.db.Close()
		broken := []string{"bad"}
		defer u.serve(t, &broken)()
		for _, order := range []string{"bad", "late"} {
			if _, err := u.orders.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"city":"Paris"}`, order)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		failed, err := u.failed(t.Context())
		if err != nil || len(failed) != 1 || failed[0].Change.ID != "bad" {
			t.Fatalf("to be retried: %v, %v", failed, err)
		}
		u.IDs = []string{failed[0].ID} // of which nothing is left when it has succeeded
		done, err := u.retry(t.Context(), u.orders, u.leases, failed)
		if err != nil || len(done) != 1 || done[0].Handled || !strings.Contains(done[0].Cause, "bad is broken") {
			t.Fatalf("a change that fails again: %v, %v", done, err)
		}
		broken = nil
		if done, err = u.retry(t.Context(), u.orders, u.leases, failed); err != nil || len(done) != 1 || !done[0].Handled {
			t.Fatalf("a change that does not fail any more: %v, %v", done, err)
		}
		if left, err := u.all(t.Context()); len(left) != 0 || err != nil {
			t.Errorf("left: %v, %v, want that what was held has followed", left, err)
		}
	})
}

func TestAKeyIsReleasedWithoutWhatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		defer u.db.Close()
		broken := []string{"bad", "worse"}
		defer u.serve(t, &broken)()
		for _, order := range []string{"bad", "worse"} {
			if _, err := u.orders.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"city":"Paris"}`, order)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		paris := []changefeed.PartitionKey{changefeed.Key("Paris")}
		done, err := u.release(t.Context(), u.orders, u.leases, paris)
		if err != nil || len(done) != 1 {
			t.Fatalf("released: %v, %v", done, err)
		}
		broken = nil
		left, err := u.all(t.Context())
		if err != nil || len(left) != 2 || left[1].Disposition != changefeed.DispositionFailed {
			t.Fatalf("left: %v, %v, want both, as failed", left, err)
		}
		// An ID stands for its key.
		u.IDs = []string{left[0].ID, left[1].ID}
		if keys, err := u.keys(t.Context()); err != nil || !slices.Equal(keys, paris) {
			t.Errorf("the keys are %v, %v", keys, err)
		}
	})
}

func TestTheWaitForAProcessorHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		defer u.db.Close()
		begun := time.Now()
		asked := []changefeed.DeadLetter{letter("12.0", "London", 12, changefeed.DispositionFailed)}
		if _, err := u.retry(t.Context(), u.orders, u.leases, asked); err == nil || !strings.HasSuffix(err.Error(), "nothing heard within 1m0s (--wait)") {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(begun); waited != u.Wait {
			t.Errorf("waited for %v, want %v", waited, u.Wait)
		}
	})
}

func TestAHeldLetterIsNotRetriedByItself(t *testing.T) {
	r := Redrive{Query: Query{Name: "mailer", IDs: []string{"13.0"}}, Letters: filed(t)}
	if _, err := r.failed(t.Context()); !errors.As(err, new(usage.Error)) || !strings.Contains(err.Error(), "changefeed dlq release to go on without it") {
		t.Errorf("got %v", err)
	}
	r.IDs = nil
	if all, err := r.failed(t.Context()); len(all) != 2 || err != nil {
		t.Errorf("all are %v, %v, want the two that failed", all, err)
	}
}

func TestTheLeasesOfLettersAreBesideThemOrNamed(t *testing.T) {
	for _, tt := range []struct{ letters, flag, want, err string }{
		{"cosmos:shop/letters", "", "cosmos:shop/leases", ""},
		{"http://127.0.0.1:8081/shop/letters", "", "http://127.0.0.1:8081/shop/leases", ""},
		{"cosmos:shop/letters", "cosmos:ops/leases", "cosmos:ops/leases", ""},
		{"", "cosmos:ops/leases", "cosmos:ops/leases", ""},
		{"", "", "", "--leases is missing"},
		{"cosmos:shop/letters", "leases", "", `--leases is "leases"`},
		{"docstore:d#letters", "", "", "the leases are in the store d"},
	} {
		at := Place{File: "letters.ndjson"}
		if tt.letters != "" {
			var err error
			if at, err = Parse(tt.letters); err != nil {
				t.Fatal(err)
			}
		}
		got, err := LeasesOf(at, tt.flag)
		if tt.err == "" && (err != nil || got.String() != tt.want) || tt.err != "" && (!errors.As(err, new(usage.Error)) || !strings.HasPrefix(err.Error(), tt.err)) {
			t.Errorf("%s, --leases %s: got %v, %v, want %s%s", tt.letters, tt.flag, got, err, tt.want, tt.err)
		}
	}
}
