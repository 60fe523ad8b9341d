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
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
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
	_, err = leases.Create(t.Context(), feed.Record{
		Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(), Version: 1, Position: feed.Position{Token: "5"},
		Properties: map[string]string{"changefeed.held": `{"at":"5","keys":["[\"Rome\"]"]}`},
	})
	if err != nil {
		t.Fatal(err)
	}
	letter := func(city string, d feed.Disposition, age time.Duration) feed.DeadLetter {
		return feed.DeadLetter{
			Disposition: d, Parked: time.Now().Add(-age),
			Change: feed.Change{PartitionKey: feed.Key(city)},
		}
	}
	letters := []feed.DeadLetter{
		letter("Oslo", feed.DispositionHeld, time.Hour), letter("Paris", feed.DispositionFailed, time.Second),
		letter("London", feed.DispositionFailed, time.Hour),
	}
	q := Query{Name: "mailer"}
	for city, held := range map[string]bool{"Rome": true, "Oslo": true, "Paris": true, "London": false, "Roma": false} {
		if err := q.checkHeld(t.Context(), leases, letters, feed.Key(city)); (err == nil) != held {
			t.Errorf("%s is held: %v, but: %v", city, held, err)
		}
	}
}

// unserved is a unit without a processor. Its orders are in memory, and its letters in a file.
type unserved struct {
	db     *docstore.DB
	orders *docstore.Container
	leases feed.LeaseStore
	Redrive
}

func newUnit(t *testing.T) *unserved {
	t.Helper()
	u := &unserved{Redrive: Redrive{
		Query: Query{Name: "mailer"}, Letters: Place{File: t.TempDir() + "/letters"},
		Wait: time.Minute,
	}}
	var err error
	if u.db, err = docstore.Open("", docstore.Options{InMemory: true}); err != nil {
		t.Fatal(err)
	}
	u.orders = create(t, u.db, "orders", "/city")
	if u.leases, err = docstore.NewLeases(t.Context(), create(t, u.db, "leases", "/id"), "mailer",
		u.orders); err != nil {
		t.Fatal(err)
	}
	return u
}

// serve runs a processor that holds keys, until the function that it returns is called. It cannot handle the orders
// that are broken.
func (u *unserved) serve(t *testing.T, broken *[]string) (stop func()) {
	t.Helper()
	box, err := deadletters.File(u.Letters.File, "mailer")
	if err != nil {
		t.Fatal(err)
	}
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		for _, c := range b.Changes {
			if slices.Contains(*broken, c.ID) {
				return fmt.Errorf("%s is broken", c.ID)
			}
		}
		return nil
	})
	p, err := changefeed.New(u.orders, u.leases, handler, changefeed.Options{
		Instance: "one", Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 2,
			DeadLetters: box, HoldKeys: true,
		},
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

// retried are the answers to a retry.
func (u *unserved) retried(t *testing.T, asked ...feed.DeadLetter) (all []Answer) {
	t.Helper()
	err := u.retryEach(t.Context(), u.orders, u.leases, asked, func(a Answer) error {
		all = append(all, a)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
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
		failed, err := u.failedLetters(t.Context())
		if err != nil || len(failed) != 1 || failed[0].Change.ID != "bad" {
			t.Fatalf("to be retried: %v, %v", failed, err)
		}
		u.IDs = []string{failed[0].ID} // of which nothing is left when it has succeeded
		if got := u.retried(t, failed...); len(got) != 1 || got[0].Result != isFailed ||
			!strings.Contains(string(got[0].Cause), "bad is broken") {
			t.Fatalf("a change that fails again: %v", got)
		}
		broken = nil
		got := u.retried(t, failed...)
		if len(got) != 1 || got[0].Result != isHandled || got[0].Handled != 2 ||
			!strings.HasSuffix(got[0].String(), "is handled, with 1 held letter after it") {
			t.Fatalf("a change that does not fail any more: %v", got)
		}
		if left, err := u.allLetters(t.Context()); len(left) != 0 || err != nil {
			t.Errorf("left: %v, %v, want that what was held has followed", left, err)
		}
		if got := u.retried(t, failed...); got[0].Result != isNothing {
			t.Errorf("a letter that is gone: %v", got)
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
		paris := []feed.PartitionKey{feed.Key("Paris")}
		var got []Answer
		release := func() {
			got = nil
			if err := u.releaseEach(t.Context(), u.orders, u.leases, paris, func(a Answer) error {
				got = append(got, a)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if release(); len(got) != 1 || got[0].Result != isFailed ||
			!strings.Contains(string(got[0].Cause), "worse is broken") {
			t.Fatalf("released: %v", got)
		}
		left, err := u.allLetters(t.Context())
		if err != nil || len(left) != 2 || left[1].Disposition != feed.DispositionFailed {
			t.Fatalf("left: %v, %v, want both, as failed", left, err)
		}
		if release(); got[0].Result != isHandled || got[0].Handled != 0 {
			t.Errorf("nothing is held any more: %v", got)
		}
		// An ID stands for its key.
		u.IDs = []string{left[0].ID, left[1].ID[:10]}
		if keys, err := u.heldKeys(t.Context()); err != nil || !slices.Equal(keys, paris) {
			t.Errorf("the keys are %v, %v", keys, err)
		}
	})
}

// Nobody works on the lease of London, and Paris has another lease.
func TestALeaseThatNobodyServesDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		defer u.db.Close()
		u.Wait = 10 * time.Second
		at := func(city string) string {
			epk, err := u.orders.Locate(t.Context(), feed.Key(city))
			if err != nil {
				t.Fatal(err)
			}
			return epk
		}
		low, middle := min(at("London"), at("Paris")), max(at("London"), at("Paris"))
		// The lease that was split is there still, because it could not be deleted.
		for _, r := range []feed.Range{
			feed.FullRange(),
			{Max: low},
			{Min: low, Max: middle},
			{Min: middle, Max: "FF"},
		} {
			lease := feed.Record{Kind: feed.KindLease, Token: r.String(), Range: r, Version: 1, State: feed.StateLive}
			if r == feed.FullRange() {
				lease.State = feed.StateRetired
			}
			if _, err := u.leases.Create(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		}
		var asked []feed.DeadLetter
		for i := range 5 {
			asked = append(asked, letter(fmt.Sprint(i, ".0"), "London", int64(i), feed.DispositionFailed))
		}
		var results []string
		for _, a := range u.retried(t, append(asked, letter("9.0", "Paris", 9, feed.DispositionFailed))...) {
			results = append(results, a.Result)
		}
		want := []string{isUnserved, isUnserved, isUnserved, isUnasked, isUnasked, isUnserved}
		if !slices.Equal(results, want) {
			t.Errorf("got %q, want %q: the letter of Paris is asked for", results, want)
		}
	})
}

// Each letter is asked for, whatever became of those before it, until three in a row are not served.
func TestALetterThatIsNotServedDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		defer u.db.Close()
		u.Wait = 10 * time.Second
		var asked []feed.DeadLetter
		for i := range 9 {
			asked = append(asked, letter(fmt.Sprint(i, ".0"), "London", int64(i), feed.DispositionFailed))
		}
		// An owner serves one request, and dies.
		time.AfterFunc(5*time.Second, func() {
			records, _, err := u.leases.List(t.Context())
			if err != nil || len(records) != 1 {
				t.Errorf("%d requests, %v", len(records), err)
				return
			}
			r := records[0]
			r.State, r.Properties = feed.StateRetired, notes.Outcome{Result: notes.Nothing}.Properties(r.Properties)
			if _, err := u.leases.Update(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
		asked[0].Change.PartitionKey = feed.Key("London", "NW1") // a key with too many components
		begun := time.Now()
		var results []string
		for _, a := range u.retried(t, asked...) {
			results = append(results, a.Result)
		}
		want := []string{
			isUnserved, isNothing, isUnserved, isUnserved, isUnserved, isUnasked, isUnasked, isUnasked,
			isUnasked,
		}
		if !slices.Equal(results, want) {
			t.Errorf("got %q, want %q", results, want)
		}
		if waited := time.Since(begun); waited > 40*time.Second {
			t.Errorf("waited for %v", waited)
		}
	})
}

func TestTheWaitForAProcessorHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		defer u.db.Close()
		begun := time.Now()
		asked := letter("12.0", "London", 12, feed.DispositionFailed)
		const want = `12.0 of ["London"]: not served within 1m0s: no instance has answered: want a running instance that has the dead letters; the request was withdrawn`
		if got := u.retried(t, asked); got[0].String() != want {
			t.Errorf("got %v, want %s", got[0], want)
		}
		if waited := time.Since(begun); waited != u.Wait {
			t.Errorf("waited for %v, want %v", waited, u.Wait)
		}
	})
}

// A command that is interrupted asks for nothing more.
func TestARetryThatIsInterruptedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		defer u.db.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := []feed.DeadLetter{
			letter("12.0", "London", 12, feed.DispositionFailed),
			letter("13.0", "London", 13, feed.DispositionFailed),
		}
		n := 0
		err := u.retryEach(ctx, u.orders, u.leases, asked, func(Answer) error { n++; return nil })
		if n != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %d answers, %v", n, err)
		}
	})
}

func TestAHeldLetterIsNotRetriedByItself(t *testing.T) {
	r := Redrive{Query: Query{Name: "mailer", IDs: []string{"13.0"}}, Letters: filed(t)}
	if _, err := r.failedLetters(t.Context()); !errors.As(err, new(usage.Error)) ||
		!strings.Contains(err.Error(), "--key '[\"London\"]' to go on without it") {
		t.Errorf("got %v", err)
	}
	r.IDs = []string{"12.0"}
	if _, err := r.failedLetters(t.Context()); !errors.As(err, new(usage.Error)) ||
		!strings.Contains(err.Error(), "letters of several keys have it") {
		t.Errorf("an ID that letters of two keys have: %v", err)
	}
	r.IDs = nil
	if all, err := r.failedLetters(t.Context()); len(all) != 2 || err != nil {
		t.Errorf("all are %v, %v, want the two that failed", all, err)
	}
}

// onDisk is a unit without a processor, with the letters of filed, and its lease store for a while.
func onDisk(t *testing.T, use func(leases feed.LeaseStore)) Redrive {
	t.Helper()
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := docstore.NewLeases(t.Context(), create(t, db, "leases", "/id"), "mailer",
		create(t, db, "orders", "/city"))
	if err != nil {
		t.Fatal(err)
	}
	use(leases)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r := Redrive{
		Query: Query{Name: "mailer"}, Letters: filed(t), Wait: time.Second,
		Opener: place.NewOpener(place.Settings{}),
	}
	t.Cleanup(func() { _ = r.Opener.Close() })
	if r.Leases, err = place.Parse("--leases", "docstore:"+dir+"#leases"); err != nil {
		t.Fatal(err)
	}
	return r
}

// What is withdrawn is what was asked for the key, or for all.
func TestRequestsAreWithdrawnByTheirKey(t *testing.T) {
	r := onDisk(t, func(leases feed.LeaseStore) {
		for _, city := range []string{"London", "Oslo", "Paris"} {
			q := notes.Request{Action: notes.Release, Key: string(feed.Key(city))}
			if _, err := leases.Create(t.Context(), feed.Record{
				Kind: feed.KindRequest, Token: q.Token(),
				Properties: q.Properties(nil),
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, tt := range []struct {
		key  feed.PartitionKey
		want int
	}{{feed.Key("Oslo"), 1}, {feed.Key("Oslo"), 0}, {"", 2}} {
		r.Key = tt.key
		if n, err := r.Withdraw(t.Context()); n != tt.want || err != nil {
			t.Errorf("withdrew %d of %q, %v, want %d", n, tt.key, err, tt.want)
		}
	}
}

// A mistake in one ID releases no key.
func TestAllKeysAreReleasedOrNone(t *testing.T) {
	r := onDisk(t, func(leases feed.LeaseStore) {
		lease := feed.Record{
			Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(), Version: 1,
			Position: feed.Position{Token: "5"},
		}
		if _, err := leases.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	})
	r.IDs = []string{"12.0", "13.0"} // of London, which is held, and of Paris, which is not
	n := 0
	err := r.Release(t.Context(), func(Answer) error { n++; return nil })
	if n != 0 || err == nil || !strings.Contains(err.Error(), `["Paris"] is not held`) {
		t.Errorf("%d answers, %v", n, err)
	}
	r.IDs = []string{"13.0"}
	if err := r.Release(t.Context(), func(Answer) error { n++; return nil }); n != 1 || err != nil {
		t.Errorf("a key that is held: %d answers, %v", n, err)
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
		got, err := LeasesOf(place.Settings{}, at, tt.flag)
		if tt.err == "" && (err != nil || got.String() != tt.want) ||
			tt.err != "" && (!errors.As(err, new(usage.Error)) || !strings.HasPrefix(err.Error(), tt.err)) {
			t.Errorf("%s, --leases %s: got %v, %v, want %s%s", tt.letters, tt.flag, got, err, tt.want, tt.err)
		}
	}
}

// A name with a typing error is no unit without letters.
func TestANameThatNoUnitHasIsNoEmptyList(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "letters", deadletters.KeyPath)
	beside := create(t, db, "leases", "/id")
	for _, orders := range []string{"orders", "bills"} { // units of one name read two containers
		leases, err := docstore.NewLeases(t.Context(), beside, "mailer", create(t, db, orders, "/city"))
		if err != nil {
			t.Fatal(err)
		}
		lease := feed.Record{
			Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(), Version: 1,
			Position: feed.Position{Token: "5"},
		}
		if _, err := leases.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	create(t, db, "others", "/id")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	opener := place.NewOpener(place.Settings{})
	defer opener.Close()
	at, err := Parse("docstore:" + dir + "#letters")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		q    Query
		want string
	}{
		{Query{Name: "mailer"}, ""},
		{Query{Name: "mailer", Source: "docstore:" + dir + "#bills"}, ""},
		{Query{Name: "mialer"}, "--name is mialer: there is no such unit in leases"},
		{Query{Name: "mialer", Key: feed.Key("Oslo")}, ""},
		{
			Query{Name: "mailer", Leases: "docstore:" + dir + "#others"},
			"--name is mailer: there is no such unit in others",
		},
		{Query{Name: "mialer", Leases: "docstore:" + dir + "#none"}, "--leases is docstore:" + dir +
			"#none: there is no such container"},
		{Query{Name: "mialer", Leases: "none"}, `--leases is "none"`},
	} {
		_, all, err := tt.q.Read(t.Context(), opener, at)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, e := range all {
			n, err = n+1, e
		}
		if tt.want == "" && n > 0 || tt.want != "" && (n != 1 || err == nil ||
			!strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%+v: %d letters and errors, %v, want %q", tt.q, n, err, tt.want)
		}
	}
}
