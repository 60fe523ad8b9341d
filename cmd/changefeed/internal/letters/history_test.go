package letters

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// told returns the lines of a history, without their times.
func told(t *testing.T, source feed.Source, leases feed.LeaseStore) string {
	t.Helper()
	all, err := admin.Open(source, leases, admin.Options{}).History(t.Context())
	if err != nil && !errors.Is(err, feed.ErrNotFound) {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range all {
		var line strings.Builder
		line.WriteString(fmt.Sprintf("%s %s by %s for %s: %d of %d", e.Action, e.Key, e.By, e.Reason, e.Done, e.Count))
		for _, c := range e.Changes {
			line.WriteString(" " + c.ID)
		}
		if e.Failed != "" {
			line.WriteString(", " + e.Failed)
		}
		lines = append(lines, line.String())
	}
	return strings.Join(lines, "; ")
}

// Each retry and release is a line in the history of the unit, with all its letters or keys, also if it has failed.
func TestWhatIsAskedOfLettersIsInTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t)
		defer u.db.Close()
		u.By = admin.Options{By: "ada", Reason: "INC-1"}
		broken := []string{"bad", "worse"}
		defer u.serve(t, &broken)()
		for city, order := range map[string]string{"Paris": "bad", "Rome": "worse"} {
			document := fmt.Appendf(nil, `{"id":%q,"city":%q}`, order, city)
			if _, err := u.orders.Upsert(t.Context(), document); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // for both to be parked
		failed, err := u.failedLetters(t.Context())
		if err != nil || len(failed) != 2 {
			t.Fatalf("to be retried: %v, %v", failed, err)
		}
		if failed[0].Change.ID != "bad" {
			failed[0], failed[1] = failed[1], failed[0]
		}
		broken = broken[1:]
		u.retried(t, failed...)
		u.retried(t)
		u.retried(t, failed[1])
		if err := u.releaseEach(t.Context(), u.orders, u.leases, []feed.PartitionKey{feed.Key("Rome")},
			func(Answer) error { return nil }); err != nil {
			t.Fatal(err)
		}
		const by = " by ada for INC-1: "
		want := "retry " + by + "1 of 2 bad worse, worse is broken; " +
			`retry ["Rome"]` + by + "0 of 1 worse, worse is broken; " +
			`release ["Rome"]` + by + "1 of 1"
		if got := told(t, u.orders, u.leases); got != want {
			t.Errorf("the history is\n%s, want\n%s", got, want)
		}
	})
}

// A drop is a line in the history if the leases of the unit are beside the letters, or where a flag says. Otherwise the
// letters are dropped all the same.
func TestADropIsInTheHistory(t *testing.T) {
	for _, tt := range []struct{ leases, flag, want string }{
		{"leases", "", `drop ["London"] by ada for : 1 of 1 order-12.0`},
		{"others", "", ""},
		{"others", "others", `drop ["London"] by ada for : 1 of 1 order-12.0`},
	} {
		at, _ := stored(t)
		withLeases(t, at, tt.leases, beginUnit(t))
		opener := place.NewOpener(place.Settings{})
		q := Query{
			Name: "mailer", Source: "docstore:" + at.Address.Dir + "#orders", IDs: []string{"12.0"},
			By: admin.Options{By: "ada"},
		}
		if tt.flag != "" {
			q.Leases = "docstore:" + at.Address.Dir + "#" + tt.flag
		}
		n, err := q.Drop(t.Context(), opener, at, nil, surely)
		if n != 1 || errors.Join(err, opener.Close()) != nil {
			t.Errorf("%+v: dropped %d, %v", tt, n, err)
		}
		withLeases(t, at, tt.leases, func(orders feed.Source, leases feed.LeaseStore) {
			if got := told(t, orders, leases); got != tt.want {
				t.Errorf("%+v: the history is %q, want %q", tt, got, tt.want)
			}
		})
	}
}

// withLeases opens the leases of the unit of letters, in a container of the same store.
func withLeases(t *testing.T, at Place, name string, f func(orders feed.Source, leases feed.LeaseStore)) {
	t.Helper()
	db, err := docstore.Open(at.Address.Dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := db.Container(name)
	if errors.Is(err, feed.ErrNotFound) {
		c, err = create(t, db, name, "/id"), nil
	}
	orders, missing := db.Container("orders")
	if err := errors.Join(err, missing); err != nil {
		t.Fatal(err)
	}
	leases, err := docstore.NewLeases(t.Context(), c, "mailer", orders)
	if err != nil {
		t.Fatal(err)
	}
	f(orders, leases)
}

// beginUnit returns a function that makes the lease of a unit.
func beginUnit(t *testing.T) func(feed.Source, feed.LeaseStore) {
	return func(_ feed.Source, leases feed.LeaseStore) {
		if _, err := leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Token: "-FF", Range: feed.FullRange(), Version: 1,
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A drop that fails half-way is a line with the letters that were removed, and with the reason.
func TestADropThatFailsIsInTheHistory(t *testing.T) {
	at, _ := stored(t)
	withLeases(t, at, "leases", beginUnit(t))
	opener := place.NewOpener(place.Settings{})
	q := Query{Name: "mailer", Source: "docstore:" + at.Address.Dir + "#orders", By: admin.Options{By: "ada"}}
	doomed := []feed.DeadLetter{
		letter("12.0", "London", 12, feed.DispositionFailed), letter("13.0", "Paris", 13, feed.DispositionFailed),
		letter("14.0", "Paris", 14, feed.DispositionFailed),
	}
	err := q.recordDrop(opener, at)(t.Context(), doomed, 1, errors.New("no more"))
	if err := errors.Join(err, opener.Close()); err != nil {
		t.Error(err)
	}
	const want = "drop  by ada for : 1 of 3 order-12.0 order-13.0 order-14.0, no more"
	withLeases(t, at, "leases", func(orders feed.Source, leases feed.LeaseStore) {
		if got := told(t, orders, leases); got != want {
			t.Errorf("the history is %q, want %q", got, want)
		}
	})
}

// A drop that cannot be recorded where a flag says has dropped its letters, and says what is missing.
func TestADropThatIsNotRecordedSaysSo(t *testing.T) {
	at := filed(t)
	q := Query{Name: "mailer", Leases: "docstore:" + t.TempDir() + "#none", IDs: []string{"13.0"}}
	n, err := q.Drop(t.Context(), place.NewOpener(place.Settings{}), at, func(string) {}, surely)
	if n != 1 || !errors.Is(err, admin.ErrNotRecorded) {
		t.Errorf("dropped %d, %v, want 1 and that its line is missing", n, err)
	}
	if left, err := listed(t, Query{Name: "mailer"}, at); strings.Contains(left, "13.0") || err != nil {
		t.Errorf("left %s, %v", left, err)
	}
}
