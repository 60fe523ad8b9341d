package docstore_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var allVersions = feed.ReadOptions{Mode: feed.AllVersionsAndDeletes}

// readVersions is a read of all versions behind a position.
func readVersions(t *testing.T, c *docstore.Container, from feed.Position) error {
	t.Helper()
	_, err := c.Read(t.Context(), feed.FullRange(), from, allVersions)
	return err
}

func TestAContainerWithoutARetentionHasThatOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := docstore.NewMem()
		options := docstore.Options{CacheBytes: 1 << 20}.WithFS(fs)
		db, err := docstore.Open("db", options)
		if err != nil {
			t.Fatal(err)
		}
		if d, set := db.Retention(); set || d != 0 {
			t.Errorf("a new store has the retention %v, set %v, want none", d, set)
		}
		before := container(t, db, docstore.ContainerSpec{ID: "before"})
		own := container(t, db, docstore.ContainerSpec{ID: "own", Retention: time.Hour})
		upsert(t, before, "a", "p", 1)
		upsert(t, before, "a", "p", 2)
		if err := readVersions(t, before, feed.Position{}); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("all versions without a retention: %v, want a bad request", err)
		}
		if err := db.SetRetention(t.Context(), 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := readVersions(t, before, feed.At("1")); !errors.Is(err, feed.ErrTooOld) {
			t.Errorf("versions before there was a retention: %v, want too old", err)
		}
		since := feed.At("2")
		upsert(t, before, "a", "p", 3)
		later := container(t, db, docstore.ContainerSpec{ID: "later"})
		upsert(t, later, "a", "p", 1)
		upsert(t, later, "a", "p", 2)
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Fatal(err)
		}

		// The store remembers it.
		if db, err = docstore.Open("db", options); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]struct {
			from feed.Position
			n    int
			keep time.Duration
		}{
			"before": {since, 1, 10 * time.Minute}, "later": {feed.At("0"), 2, 10 * time.Minute},
			"own": {feed.At("0"), 0, time.Hour},
		} {
			c, err := db.Container(id)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := drain(t, c, feed.FullRange(), want.from, allVersions)
			if len(got) != want.n || c.Retention() != want.keep {
				t.Errorf("container %s has %d versions and the retention %v, want %d and %v", id, len(got),
					c.Retention(), want.n, want.keep)
			}
			if c.Spec().Retention != own.Spec().Retention && c.Spec().Retention != 0 {
				t.Errorf("the specification of %s says %v", id, c.Spec().Retention)
			}
		}
		before, _ = db.Container("before")
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if err := readVersions(t, before, since); !errors.Is(err, feed.ErrTooOld) {
			t.Errorf("versions older than the retention: %v, want too old", err)
		}

		// A policy of its own, and back.
		spec := before.Spec()
		spec.Retention = time.Hour
		if _, err := db.ReplaceContainer(t.Context(), spec); err != nil || before.Retention() != time.Hour {
			t.Errorf("retention of its own is %v, %v", before.Retention(), err)
		}
		at := feed.At("3")
		spec.Retention = 0
		if _, err := db.ReplaceContainer(t.Context(), spec); err != nil || before.Retention() != 10*time.Minute {
			t.Errorf("retention is %v, %v, want that of the store again", before.Retention(), err)
		}
		if err := readVersions(t, before, at); err != nil {
			t.Errorf("versions that both keep: %v", err)
		}

		// Off: what was superseded goes.
		upsert(t, before, "a", "p", 4)
		if err := db.SetRetention(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := db.Versions(before); n != 1 {
			t.Errorf("%d versions are left, want the last one", n)
		}
		if d, set := db.Retention(); !set || d != 0 {
			t.Errorf("retention is %v, set %v, want none, and that it was set", d, set)
		}
		if err := db.SetRetention(t.Context(), -time.Second); !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("SetRetention(-1s): %v, want a bad request", err)
		}
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A retention that is turned off and on again, before the sweeper has seen either, keeps
// what is superseded since.
func TestARetentionTurnedOnAgainKeepsPreviousImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true}.Resting())
		c := container(t, db, docstore.ContainerSpec{Retention: time.Hour})
		upsert(t, c, "a", "p", 0)
		upsert(t, c, "a", "p", 1)
		for _, d := range []time.Duration{0, time.Hour} {
			s := c.Spec()
			s.Retention = d
			if _, err := db.ReplaceContainer(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		upsert(t, c, "a", "p", 2)
		db.Sweep(c)
		got, _ := drain(t, c, feed.FullRange(), feed.At("2"), feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
		if len(got) != 1 || got[0].Previous == nil || valueOf(t, got[0].Previous) != 1 {
			t.Errorf("got %+v, want one change and what it replaced", got)
		}
		if n := db.Versions(c); n != 2 {
			t.Errorf("%d versions are stored, want the last and the one before", n)
		}
	})
}

// A container that gets a retention of its own has no versions of the time before, whichever way it got the retention.
func TestVersionsBeginWhenAContainerGetsARetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true})
		c := container(t, db, docstore.ContainerSpec{})
		upsert(t, c, "a", "p", 1)
		upsert(t, c, "a", "p", 2)
		if _, err := db.UpdateContainer(t.Context(), "c", func(s *docstore.ContainerSpec) error {
			s.Retention = time.Hour
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := readVersions(t, c, feed.At("1")); !errors.Is(err, feed.ErrTooOld) {
			t.Errorf("versions before there was a retention: %v, want too old", err)
		}
		upsert(t, c, "a", "p", 3)
		if got, _ := drain(t, c, feed.FullRange(), feed.At("2"), allVersions); len(got) != 1 {
			t.Errorf("%d versions since there is a retention, want 1", len(got))
		}
	})
}

// Versions of one document are in several logs after splits, and are forgotten all the
// same. In which order logs are looked through is by chance, so there are some containers.
func TestVersionsInSeveralLogsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true}.Resting())
		for i := range 8 {
			c := container(t, db, docstore.ContainerSpec{ID: fmt.Sprint("c", i), Retention: time.Minute})
			for v := range 4 {
				upsert(t, c, "a", "p", v)
				split(t, c)
			}
			time.Sleep(2 * time.Minute)
			db.Sweep(c)
			if n := db.Versions(c); n != 1 {
				t.Errorf("%d versions are stored, want the last alone", n)
			}
		}
	})
}
