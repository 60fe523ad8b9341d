package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// inBubble is a store in memory and in virtual time.
func inBubble(t *testing.T, s docstore.ContainerSpec, f func(t *testing.T, db *docstore.DB, c *docstore.Container)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true})
		f(t, db, container(t, db, s))
	})
}

func ids(changes []feed.Change) string {
	var text strings.Builder
	for _, ch := range changes {
		text.WriteString(fmt.Sprintf("%s %s,", ch.Op, ch.ID))
	}
	return text.String()
}

func TestAnItemThatIsRenewedBeforeTheSweeperCommitsStays(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(docstore.NoDefaultTTL)},
		func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
			if _, err := c.Upsert(t.Context(), []byte(`{"id":"renewed","pk":"p","ttl":30}`)); err != nil {
				t.Fatal(err)
			}
			if n, err := c.ExpireSeenAt(t.Context(), time.Now().Add(time.Minute)); n != 0 || err != nil {
				t.Errorf("%d expired, %v: want none yet", n, err)
			}
			if _, err := c.Item(t.Context(), feed.Key("p"), "renewed"); err != nil {
				t.Error(err)
			}
		})
}

func TestExpiredItemsVanishAtOnceAndAreDeletedSoon(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(10), Retention: time.Hour},
		func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
			for _, doc := range []string{
				`{"id":"default","pk":"p"}`, `{"id":"own","pk":"p","ttl":20}`, `{"id":"ever","pk":"p","ttl":-1}`,
			} {
				if _, err := c.Upsert(t.Context(), []byte(doc)); err != nil {
					t.Fatal(err)
				}
			}
			versions := feed.ReadOptions{Mode: feed.AllVersionsAndDeletes}
			for _, step := range []struct {
				sleep            time.Duration
				latest, versions string
			}{
				{
					10*time.Second - time.Millisecond, "upsert default,upsert own,upsert ever,",
					"create default,create own,create ever,",
				},
				{time.Millisecond, "upsert own,upsert ever,", ""},
				{2 * time.Second, "upsert own,upsert ever,", "create default,create own,create ever,delete default,"},
				{8 * time.Second, "upsert ever,", ""},
				{2 * time.Second, "upsert ever,", "create default,create own,create ever,delete default,delete own,"},
			} {
				time.Sleep(step.sleep)
				got, _ := drain(t, c, feed.FullRange(), feed.At("0"), feed.ReadOptions{})
				if ids(got) != step.latest {
					t.Errorf("latest: %s want %s", ids(got), step.latest)
				}
				all, _ := drain(t, c, feed.FullRange(), feed.At("0"), versions)
				if step.versions != "" && ids(all) != step.versions {
					t.Errorf("versions: %s want %s", ids(all), step.versions)
				}
			}
			if c.Count() != 1 {
				t.Errorf("%d documents", c.Count())
			}
		})
}

// TestCreateOverExpiredItem writes in the very moment of the expiry, before the sweeper.
func TestCreateOverExpiredItem(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(10), Retention: time.Hour, UniqueKeys: [][]string{{"/u"}}},
		func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
			create := func(doc string) {
				t.Helper()
				if _, err := c.Create(t.Context(), []byte(doc)); err != nil {
					t.Fatal(err)
				}
			}
			create(`{"id":"a","pk":"p","u":1}`)
			create(`{"id":"b","pk":"p","u":2}`)
			time.Sleep(10 * time.Second)
			create(`{"id":"a","pk":"p","u":2}`)
			time.Sleep(2 * time.Second)
			all, _ := drain(t, c, feed.FullRange(), feed.At("0"), feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
			if want := "create a,create b,delete a,delete b,create a,"; ids(all) != want {
				t.Errorf("got %s want %s", ids(all), want)
			}
		})
}

func TestVersionsAreKeptForTheRetention(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{Retention: 10 * time.Minute},
		func(t *testing.T, db *docstore.DB, c *docstore.Container) {
			o := feed.ReadOptions{Mode: feed.AllVersionsAndDeletes}
			for v := range 10 {
				upsert(t, c, "a", "p", v)
				time.Sleep(2 * time.Minute)
			}
			time.Sleep(2 * time.Minute)
			if _, err := c.Read(t.Context(), feed.FullRange(), feed.At("0"), o); !errors.Is(err, feed.ErrTooOld) {
				t.Errorf("read from 0: %v", err)
			}
			got, _ := drain(t, c, feed.FullRange(), feed.At("8"), o)
			if len(got) != 2 || valueOf(t, got[0].Previous) != 7 || got[1].PreviousLSN != 9 {
				t.Errorf("got %+v", got)
			}
			latest, _ := drain(t, c, feed.FullRange(), feed.At("0"), feed.ReadOptions{})
			if len(latest) != 1 {
				t.Errorf("latest has %d", len(latest))
			}
			if n := db.Versions(c); n > 6 {
				t.Errorf("%d versions are stored", n)
			}
		})
}

// A delete is kept for the retention too, and no longer, whoever deletes: then nothing is left of the document.
func TestDeletesAreKeptForTheRetention(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(-1), Retention: 10 * time.Minute},
		func(t *testing.T, db *docstore.DB, c *docstore.Container) {
			upsert(t, c, "deleted", "p", 1)
			if _, err := c.Upsert(t.Context(), []byte(`{"id":"expires","pk":"p","ttl":60}`)); err != nil {
				t.Fatal(err)
			}
			if err := c.Delete(t.Context(), feed.Key("p"), "deleted", ""); err != nil {
				t.Fatal(err)
			}
			for _, want := range []int{4, 0} { // two versions and two deletes
				time.Sleep(9 * time.Minute)
				synctest.Wait()
				if n := db.Versions(c); n != want {
					t.Errorf("%d versions are stored, want %d", n, want)
				}
			}
		})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{Ranges: 2}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		parts, err := c.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		var woken atomic.Int32
		for _, p := range parts {
			go func() {
				if err := c.Wait(ctx, p.Range, feed.Position{}); err == nil {
					woken.Add(1)
				} else if !errors.Is(err, cause) {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		upsert(t, c, "a", "p", 1)
		time.Sleep(2 * time.Minute)
		if n := woken.Load(); n != 1 {
			t.Errorf("%d readers woke up for one write", n)
		}
	})
}

func TestSplitEndsWait(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		done := make(chan error, 1)
		go func() { done <- c.Wait(t.Context(), feed.FullRange(), feed.Position{}) }()
		synctest.Wait()
		if _, err := c.Split(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestMovedVersionsLeaveOldLogs splits and merges until the background work is done.
func TestMovedVersionsLeaveOldLogs(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{Retention: time.Hour},
		func(t *testing.T, db *docstore.DB, c *docstore.Container) {
			for i := range 500 {
				upsert(t, c, fmt.Sprint("i", i%100), fmt.Sprint("p", i%100), i)
			}
			made, err := c.Split(t.Context(), "0")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Split(t.Context(), made[0].ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			for _, p := range db.Stats().Containers[0].Partitions {
				if p.Logs != 1 || p.Documents == 0 {
					t.Errorf("partition %+v", p)
				}
			}
			n := 0
			parts, _ := c.Partitions(t.Context())
			for _, p := range parts {
				all, _ := drain(t, c, p.Range, feed.At("0"), feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
				n += len(all)
			}
			if n != 500 {
				t.Errorf("%d versions", n)
			}
		})
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{
		"", "42", `"42"`, `"`, `""`, "-1", "+1", `"9223372036854775807"`, "9223372036854775808",
		"0x1", " 1",
	} {
		f.Add(s)
	}
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		f.Fatal(err)
	}
	c := container(f, db, docstore.ContainerSpec{})
	f.Cleanup(func() { _ = db.Close() })
	f.Fuzz(func(t *testing.T, token string) {
		page, err := c.Read(t.Context(), feed.FullRange(), feed.At(token), feed.ReadOptions{})
		if err != nil && !errors.Is(err, feed.ErrBadRequest) {
			t.Fatal(err)
		}
		if err == nil && token != "" && page.Next.Token != `"`+trimQuotes(token)+`"` && page.Next.Token != `"0"` {
			t.Errorf("token %q continues at %q", token, page.Next.Token)
		}
	})
}

func trimQuotes(s string) string {
	if len(s) > 1 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}

// TestAPatchTakesTheUniqueKeyOfAnExpiredItem does so before the sweeper has come by, in a
// batch whose other writes stay together.
func TestAPatchTakesTheUniqueKeyOfAnExpiredItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true}.Resting())
		c := container(t, db, docstore.ContainerSpec{
			DefaultTTL: new(docstore.NoDefaultTTL), Retention: time.Hour,
			UniqueKeys: [][]string{{"/u"}},
		})
		for _, doc := range []string{`{"id":"old","pk":"p","u":1,"ttl":10}`, `{"id":"new","pk":"p","u":2}`} {
			if _, err := c.Create(t.Context(), []byte(doc)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		_, err := c.Commit(t.Context(), feed.Key("p"), []feed.Write{
			{Body: []byte(`{"id":"other","pk":"p","u":3}`)},
			{Op: feed.WritePatch, ID: "new", Patch: []feed.PatchOp{{Op: "set", Path: "/u", Value: []byte("1")}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		all, _ := drain(t, c, feed.FullRange(), feed.At("2"), feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
		if want := "delete old,create other,replace new,"; ids(all) != want || all[1].LSN != all[2].LSN {
			t.Errorf("got %s want %s", ids(all), want)
		}
	})
}

// TestManyThatExpireTogetherAreAllDeleted has more documents expire than one turn of the
// sweeper takes, in batches that two turns share.
func TestManyThatExpireTogetherAreAllDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true}.Resting())
		c := container(t, db, docstore.ContainerSpec{DefaultTTL: new(10)})
		for _, pk := range []string{"a", "b", "c", "d", "e", "f"} {
			if _, err := c.Commit(t.Context(), feed.Key(pk), batchOf(pk, 100, 1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if db.Sweep(c); c.Count() != 0 {
			t.Errorf("%d documents are left", c.Count())
		}
	})
}

// While the sweeper deletes the first document, it finds out when the second one expires: nobody writes until then.
func TestEachDocumentIsDeletedSoonAfterItsOwnExpiry(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(10)}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		upsert(t, c, "first", "p", 1)
		time.Sleep(5 * time.Second)
		upsert(t, c, "second", "p", 1)
		for _, left := range []int64{1, 0} {
			time.Sleep(7 * time.Second)
			if n := c.Count(); n != left {
				t.Errorf("%d documents are left, want %d", n, left)
			}
		}
	})
}

// The default is raised while the sweeper deletes what has expired by the one before: a document
// that is not deleted now lives on, and expires by the new one.
func TestADefaultThatIsRaisedDuringASweepLosesNoDelete(t *testing.T) {
	const documents = 2000
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(10), Retention: time.Hour},
		func(t *testing.T, db *docstore.DB, c *docstore.Container) {
			for n := range documents / 100 {
				pk := fmt.Sprint("p", n)
				if _, err := c.Commit(t.Context(), feed.Key(pk), batchOf(pk, 100, 10)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(9 * time.Second)
			for ttl := 11; ttl < 40; ttl++ {
				time.Sleep(time.Second) // now the sweeper begins
				for range rand.IntN(200) {
					runtime.Gosched()
				}
				_, err := db.UpdateContainer(t.Context(), "c", func(s *docstore.ContainerSpec) error {
					s.DefaultTTL = &ttl
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if ttl == 13 {
					split(t, c)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			deletes := 0
			parts, err := c.Partitions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				changes, _ := drain(t, c, p.Range, feed.At("0"), feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
				for _, ch := range changes {
					if ch.Expired {
						deletes++
					}
				}
			}
			if n := c.Count(); n != 0 || deletes != documents {
				t.Errorf("%d documents are left, and %d deletes are in the feed: want none, and %d", n, deletes,
					documents)
			}
		})
}

// What the sweeper has found by one default, and cannot delete by the next, is found again.
func TestWhatLivesLongerByAnotherDefaultIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := open(t, docstore.Options{InMemory: true}.Resting())
		c := container(t, db, docstore.ContainerSpec{DefaultTTL: new(10)})
		upsert(t, c, "a", "p", 1)
		upsert(t, c, "b", "p", 1)
		time.Sleep(11 * time.Second)
		n, err := c.ExpireBehind(t.Context(), func() {
			_, err := db.UpdateContainer(t.Context(), "c", func(s *docstore.ContainerSpec) error {
				s.DefaultTTL = new(60)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		if n != 0 || err != nil || c.Count() != 2 {
			t.Fatalf("%d deleted, %v, %d left: want both to live on", n, err, c.Count())
		}
		time.Sleep(time.Minute)
		if n, err := c.ExpireBehind(t.Context(), func() {}); n != 2 || err != nil || c.Count() != 0 {
			t.Errorf("%d deleted, %v, %d left: want both deleted", n, err, c.Count())
		}
	})
}

// A document that is written while the sweeper deletes others is deleted when its own time comes, and not at the next
// time that the sweeper has found.
func TestADocumentThatIsWrittenDuringASweepExpiresInItsTime(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(docstore.NoDefaultTTL)},
		func(t *testing.T, db *docstore.DB, c *docstore.Container) {
			put := func(text string) {
				t.Helper()
				if _, err := c.Upsert(t.Context(), []byte(text)); err != nil {
					t.Error(err)
				}
			}
			put(`{"id":"due","pk":"p","ttl":10}`)
			put(`{"id":"far","pk":"p","ttl":3600}`)
			time.Sleep(9 * time.Second)
			release := db.Hold()
			var writing sync.WaitGroup
			writing.Go(func() { put(`{"id":"soon","pk":"p","ttl":30}`) })
			time.Sleep(5 * time.Second) // the sweeper finds what is due, and its delete waits behind the write
			release()
			writing.Wait()
			time.Sleep(40 * time.Second)
			if n := c.Count(); n != 1 {
				t.Errorf("%d documents are kept, want only that which expires in an hour", n)
			}
		})
}
