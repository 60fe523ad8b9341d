package docstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
	"github.com/millrace/changefeed/internal/cosmosdb/pkey"
)

// A start time takes in all of its own millisecond, however many commits it had.
func TestAStartTimeHasAllOfItsMoment(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		begun := time.Now()
		const moments, each = 4, 5
		for m := range moments {
			for n := range each {
				upsert(t, c, fmt.Sprint(m, n), "p", n)
			}
			time.Sleep(time.Millisecond)
		}
		for m := range moments {
			from := feed.Position{Start: feed.FromTime(begun.Add(time.Duration(m) * time.Millisecond))}
			got, _ := drain(t, c, feed.FullRange(), from, feed.ReadOptions{})
			if want := (moments - m) * each; len(got) != want {
				t.Errorf("%d changes from moment %d on, want %d", len(got), m, want)
			}
			if b, err := c.Pending(t.Context(), feed.FullRange(), from, feed.ReadOptions{}); err != nil ||
				b.Items != int64((moments-m)*each) {
				t.Errorf("%+v, %v are pending from moment %d on", b, err, m)
			}
		}
	})
}

// The sweeper takes 256 documents at a time, which may end within a transaction.
func TestTransactionsLargerThanASweepExpireAsAWhole(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(10)},
		func(t *testing.T, db *docstore.DB, c *docstore.Container) {
			for k := range 3 {
				pk := fmt.Sprint("p", k)
				if _, err := c.Commit(t.Context(), feed.Key(pk), batchOf(pk, 100, 10)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if n, kept := c.Count(), db.Versions(c); n != 0 || kept != 0 {
				t.Errorf("%d documents and %d versions are left of what has expired", n, kept)
			}
		})
}

// Versions moved after a split expire all the same, though the sweeper has been where they come to, and has found there
// what lives for ever.
func TestWhatIsMovedExpires(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{DefaultTTL: new(60)},
		func(t *testing.T, db *docstore.DB, c *docstore.Container) {
			const each = 20
			for n := range each {
				upsert(t, c, fmt.Sprint(n), fmt.Sprint("key ", n), 1)
			}
			split(t, c)
			synctest.Wait() // the sweeper has seen to it, and rests for a second
			split(t, c)
			for n := range each {
				if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"ever","pk":"key %d","ttl":-1}`,
					n)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(70 * time.Second)
			synctest.Wait()
			if n, kept := c.Count(), db.Versions(c); n != each || kept != each {
				t.Errorf("%d documents and %d versions are left, want the %d that do not expire", n, kept, each)
			}
		})
}

// A batch refused in its middle leaves nothing, in the number of documents neither, also when it is written with
// accepted ones.
func TestARefusedBatchIsNotCounted(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, db *docstore.DB, c *docstore.Container) {
		upsert(t, c, "there", "p", 1)
		body := func(id string) []byte { return fmt.Appendf(nil, `{"id":%q,"pk":"p"}`, id) }
		release := db.Hold()
		results := make([]error, 2)
		var writing sync.WaitGroup
		for i, ids := range [][]string{{"first"}, {"a", "b", "there"}} {
			writes := make([]feed.Write, len(ids))
			for n, id := range ids {
				writes[n] = feed.Write{Op: feed.WriteCreate, Body: body(id)}
			}
			writing.Go(func() { _, results[i] = c.Commit(t.Context(), feed.Key("p"), writes) })
			synctest.Wait() // it is in the queue
		}
		release()
		writing.Wait()
		if results[0] != nil || !errors.Is(results[1], feed.ErrConflict) || c.Count() != 2 {
			t.Errorf("%d documents after %v", c.Count(), results)
		}
	})
}

// A record is written under the ETag it was read with, and under no other text that stands for any.
func TestALeaseWithoutAnETagOverwritesNothing(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{ID: "orders"}, func(t *testing.T, db *docstore.DB, c *docstore.Container) {
		leases, err := docstore.NewLeases(t.Context(),
			container(t, db, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}}), "unit", c)
		if err != nil {
			t.Fatal(err)
		}
		l, err := leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: "-FF",
			Range: feed.FullRange(),
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, etag := range []string{"", "*", `"another"`} {
			l.ETag, l.Owner = etag, "thief"
			if _, err := leases.Update(t.Context(), l); !errors.Is(err, feed.ErrConflict) {
				t.Errorf("an update under ETag %q: %v, want a conflict", etag, err)
			}
			if err := leases.Delete(t.Context(), l); !errors.Is(err, feed.ErrConflict) {
				t.Errorf("a delete under ETag %q: %v, want a conflict", etag, err)
			}
		}
	})
}

// What is pending stays so through splits and merges of its partitions.
func TestASplitChangesNothingOfWhatIsPending(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		for n := range 20 {
			upsert(t, c, "a", fmt.Sprint("key ", n), 1)
		}
		pending := func() int64 {
			b, err := c.Pending(t.Context(), feed.FullRange(), feed.At("5"), feed.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return b.Items
		}
		split(t, c)
		if n := pending(); n != 15 {
			t.Errorf("%d changes are pending after a split, want 15", n)
		}
		parts, err := c.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Merge(t.Context(), parts[0].ID, parts[1].ID); err != nil {
			t.Fatal(err)
		}
		if n := pending(); n != 15 {
			t.Errorf("%d changes are pending after a merge, want 15", n)
		}
	})
}

// A batch has 100 writes at most, as the service's.
func TestABatchHasAHundredWrites(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		if _, err := c.Commit(t.Context(), feed.Key("p"), batchOf("p", 100, 1)); err != nil {
			t.Error(err)
		}
		if _, err := c.Commit(t.Context(), feed.Key("p"), batchOf("p", 101, 1)); !errors.Is(err,
			docstore.ErrBatchLimit) {
			t.Errorf("101 writes: %v", err)
		}
	})
}

// A batch whose requests are small may not have hundreds of megabytes of documents made or read.
func TestABatchMakesAndReadsSixteenMegabytes(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		const size, most = 1 << 20, 15 // with their system properties, 16 are too many
		writes := map[feed.WriteOp][]feed.Write{}
		for i := range most + 1 {
			id := fmt.Sprint(i)
			if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":"p","text":%q}`, id,
				strings.Repeat("x", size))); err != nil {
				t.Fatal(err)
			}
			patch := []feed.PatchOp{{Op: "set", Path: "/v", Value: []byte("1")}}
			writes[feed.WritePatch] = append(writes[feed.WritePatch],
				feed.Write{Op: feed.WritePatch, ID: id, Patch: patch})
			writes[feed.WriteRead] = append(writes[feed.WriteRead], feed.Write{Op: feed.WriteRead, ID: id})
		}
		for op, list := range writes {
			if _, err := c.Commit(t.Context(), feed.Key("p"), list[:most]); err != nil {
				t.Errorf("%v of %d MB: %v", op, most, err)
			}
			if _, err := c.Commit(t.Context(), feed.Key("p"), list); !errors.Is(err, docstore.ErrBatchLimit) {
				t.Errorf("%v of %d MB: %v, want the limit of batches", op, most+1, err)
			}
		}
	})
}

// The previous image of a change is there for as long as the change itself.
func TestTheOldestVersionInTheFeedHasItsPreviousImage(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{Retention: 10 * time.Minute},
		func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
			var at feed.Position
			for v := range 4 {
				at = feed.At(fmt.Sprint(upsert(t, c, "a", "p", v).LSN - 1))
				time.Sleep(2 * time.Minute)
			}
			for range 15 { // until only the last version is young enough
				page, err := c.Read(t.Context(), feed.FullRange(), at, allVersions)
				if err != nil || len(page.Changes) != 1 || valueOf(t, page.Changes[0].Previous) != 2 {
					t.Fatalf("%+v, %v: want the last change with the version before it", page.Changes, err)
				}
				time.Sleep(30 * time.Second)
			}
		})
}

// Documents written while a split counts the others are in the right half, also those at the cut itself.
func TestASplitCountsWhatIsWrittenMeanwhile(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, db *docstore.DB, c *docstore.Container) {
		for n := range 10 {
			upsert(t, c, "a", fmt.Sprint("key ", n), 1)
		}
		atCut, err := pkey.Parse(string(feed.Key("key 3")))
		if err != nil {
			t.Fatal(err)
		}
		cut, err := epk.Hash(epk.HashV2, atCut.Components())
		if err != nil {
			t.Fatal(err)
		}
		parts, err := c.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release := db.Hold()
		var busy sync.WaitGroup
		busy.Go(func() {
			if _, err := c.SplitAt(t.Context(), parts[0].ID, cut); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for n := range 10 {
			busy.Go(func() {
				if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"b","pk":"key %d"}`, n)); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		release()
		busy.Wait()
		if n := c.Count(); n != 20 {
			t.Errorf("%d documents, want 20", n)
		}
		if err := db.Check(); err != nil { // counts the documents of each half
			t.Error(err)
		}
	})
}

// A refused write moves nothing in its partition, also when another partition has a write in the same group: the newest
// change of a partition is what its readers wait for and measure their lag by.
func TestARefusedWriteIsNoNewChangeOfItsPartition(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{Ranges: 2}, func(t *testing.T, db *docstore.DB, c *docstore.Container) {
		newest := func() (lsns []int64) {
			for _, p := range db.Stats().Containers[0].Partitions {
				lsns = append(lsns, p.Newest)
			}
			return lsns
		}
		keys := map[int]string{} // by the place of their partition
		for n := 0; len(keys) < 2; n++ {
			key := fmt.Sprint("key ", n)
			lsn := upsert(t, c, "there", key, 1).LSN
			keys[slices.Index(newest(), lsn)] = key
		}
		before := newest()
		release := db.Hold()
		var writing sync.WaitGroup
		for place, want := range []error{feed.ErrConflict, nil} {
			body := fmt.Appendf(nil, `{"id":%q,"pk":%q}`, []string{"there", "new"}[place], keys[place])
			writing.Go(func() {
				if _, err := c.Create(t.Context(), body); !errors.Is(err, want) {
					t.Errorf("create: %v, want %v", err, want)
				}
			})
			synctest.Wait() // it is in the queue
		}
		release()
		writing.Wait()
		if after := newest(); after[0] != before[0] || after[1] <= before[1] {
			t.Errorf("the newest LSNs were %d and are %d after a write of the second partition", before, after)
		}
	})
}

// The time of a container in the figures of its store is that of its newest commit, also after the store was opened
// again.
func TestStatsHaveTheTimeOfTheNewestCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := docstore.NewMem()
		for range 2 {
			db, err := docstore.Open("db", docstore.Options{}.WithFS(mem))
			if err != nil {
				t.Fatal(err)
			}
			if len(db.Containers()) == 0 {
				container(t, db, docstore.ContainerSpec{})
			} else if at := time.Now().Add(-time.Hour).UTC(); !db.Stats().Containers[0].Time.Equal(at) {
				t.Errorf("the newest commit was at %v, want %v", db.Stats().Containers[0].Time, at)
			}
			time.Sleep(time.Hour)
			upsert(t, db.Containers()[0], "a", "p", 1)
			if at := db.Stats().Containers[0].Time; !at.Equal(time.Now()) {
				t.Errorf("the newest commit was at %v, want %v", at, time.Now())
			}
			time.Sleep(time.Hour)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Where the old end of a log is dead, readers from the beginning start at the first living version, and not behind it.
func TestEachReaderFromTheBeginningGetsTheFirstChange(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		for v := range 3 {
			for n := range 5 {
				upsert(t, c, fmt.Sprint(n), "p", v)
			}
		}
		for reader := range 3 {
			got, _ := drain(t, c, feed.FullRange(), feed.Position{Start: feed.FromBeginning()}, feed.ReadOptions{})
			if len(got) != 5 || got[0].ID != "0" {
				t.Errorf("reader %d got %d changes, want all 5", reader+1, len(got))
			}
		}
	})
}

// onSlowDisk opens a store whose log, while slow is true, is written when disk is closed.
func onSlowDisk(t *testing.T) (db *docstore.DB, slow *atomic.Bool, disk chan struct{}) {
	slow, disk = new(atomic.Bool), make(chan struct{})
	fs := docstore.Failing(docstore.NewMem(), func(write bool, path string) bool {
		if write && slow.Load() && strings.HasSuffix(path, ".log") {
			<-disk
		}
		return false
	})
	db, err := docstore.Open("db", docstore.Options{}.WithFS(fs))
	if err != nil {
		t.Fatal(err)
	}
	return db, slow, disk
}

// A page lacks a version being overwritten; it is given out when the disk has the overwrite, since else a power loss
// would bring the version back behind the page.
func TestAPageWaitsForTheWriteThatTookAVersionAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, slow, disk := onSlowDisk(t)
		c := container(t, db, docstore.ContainerSpec{})
		upsert(t, c, "a", "p", 1)
		upsert(t, c, "b", "p", 1)
		slow.Store(true)
		var busy sync.WaitGroup
		busy.Go(func() {
			if _, err := c.Upsert(t.Context(), []byte(`{"id":"a","pk":"p","v":2}`)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		pages := make(chan feed.Page, 1)
		busy.Go(func() {
			page, err := c.Read(t.Context(), feed.FullRange(), feed.At("0"), feed.ReadOptions{})
			if err != nil {
				t.Error(err)
			}
			pages <- page
		})
		synctest.Wait()
		if len(pages) != 0 {
			t.Errorf("got %+v before the disk had it", <-pages)
		}
		slow.Store(false)
		close(disk)
		busy.Wait()
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// The write of a lease takes nothing away from the documents of another container: their pages do not wait until the
// disk has it. The pages of a container being changed do.
func TestAPageDoesNotWaitForWritesOfOtherContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, slow, disk := onSlowDisk(t)
		c := container(t, db, docstore.ContainerSpec{})
		leases, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "leases", Paths: []string{"/pk"}})
		if err != nil {
			t.Fatal(err)
		}
		upsert(t, c, "a", "p", 1)
		upsert(t, leases, "l", "p", 1)
		slow.Store(true)
		var busy sync.WaitGroup
		busy.Go(func() {
			if _, err := leases.Upsert(t.Context(), []byte(`{"id":"l","pk":"p","v":2}`)); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		pages := make(chan string, 2)
		for _, from := range []*docstore.Container{c, leases} {
			busy.Go(func() {
				if _, err := from.Read(t.Context(), feed.FullRange(), feed.At("0"), feed.ReadOptions{}); err != nil {
					t.Error(err)
				}
				pages <- from.ID()
			})
		}
		synctest.Wait()
		if len(pages) != 1 || <-pages != c.ID() {
			t.Errorf("%d more pages before the disk had the lease: want the documents' alone", len(pages))
		}
		slow.Store(false)
		close(disk)
		busy.Wait()
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A feed opened by a layout which a split has replaced meanwhile may lack moved versions: it is opened again.
func TestAFeedIsOpenedByThePresentLayout(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, db *docstore.DB, c *docstore.Container) {
		upsert(t, c, "a", "p", 1)
		if err := db.OpenBehind(c, func() {}); err != nil {
			t.Error(err)
		}
		if err := db.OpenBehind(c, func() { split(t, c) }); !errors.Is(err, docstore.ErrMoved) {
			t.Errorf("the feed of a former layout: %v", err)
		}
	})
}

// The head of a page is that of its partition: by the container's head, a reader of a quiet partition would never have
// caught up.
func TestThePageOfAPartitionHasItsOwnHead(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{Ranges: 2}, func(t *testing.T, db *docstore.DB, c *docstore.Container) {
		for n := range 20 {
			upsert(t, c, "a", fmt.Sprint("key ", n), 1)
		}
		for _, p := range db.Stats().Containers[0].Partitions {
			page, err := c.Read(t.Context(), p.Range, feed.At("0"), feed.ReadOptions{})
			if err != nil || page.Head != p.Newest || p.Newest == 0 {
				t.Errorf("partition %s: head %d, %v, want %d", p.ID, page.Head, err, p.Newest)
			}
		}
	})
}

// endsLater is a context that ends after it was asked so many times.
type endsLater struct {
	context.Context
	asked *atomic.Int64
	after int64
}

func (c endsLater) Err() error {
	if c.asked.Add(1) > c.after {
		return context.Canceled
	}
	return nil
}

// A reader of one key walks past the changes of all others. One who has gone is not walked for to the end.
func TestAWalkEndsWithItsReader(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{}, func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
		const documents, looks = 5000, 2
		for from := 0; from < documents; from += 100 {
			if _, err := c.Commit(t.Context(), feed.Key(fmt.Sprint(from)),
				batchOf(fmt.Sprint(from), 100, 1)); err != nil {
				t.Fatal(err)
			}
		}
		ctx := endsLater{t.Context(), new(atomic.Int64), looks}
		_, err := c.Read(ctx, feed.FullRange(), feed.At("0"), feed.ReadOptions{Key: feed.Key("none")})
		if !errors.Is(err, context.Canceled) || ctx.asked.Load() > looks+4 {
			t.Errorf("%v, and the context was asked %d times, want that it ends at the third", err, ctx.asked.Load())
		}
	})
}

// The bodies of a page lie side by side in one buffer. A caller who appends to one does not write over the next.
func TestAnAppendToABodyChangesNoOther(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{Retention: time.Hour},
		func(t *testing.T, _ *docstore.DB, c *docstore.Container) {
			for v := range 3 {
				upsert(t, c, "a", "p", v)
			}
			page, err := c.Read(t.Context(), feed.FullRange(), feed.At("0"), allVersions)
			if err != nil || len(page.Changes) != 3 {
				t.Fatalf("%d changes, %v", len(page.Changes), err)
			}
			for _, change := range page.Changes {
				_ = append(change.Body, strings.Repeat("x", 1000)...)
				_ = append(change.Previous, strings.Repeat("x", 1000)...)
			}
			for v, change := range page.Changes {
				if valueOf(t, change.Body) != v || v > 0 && valueOf(t, change.Previous) != v-1 {
					t.Errorf("change %d has %s and before it %s", v, change.Body, change.Previous)
				}
			}
		})
}

// Records made by a host under another name of this machine are listed, with an error saying so: else nobody would
// learn of the unit's two sets of them.
func TestRecordsUnderAnotherNameOfThisMachineAreListed(t *testing.T) {
	inBubble(t, docstore.ContainerSpec{ID: "orders"}, func(t *testing.T, db *docstore.DB, orders *docstore.Container) {
		c := container(t, db, docstore.LeaseSpec("leases"))
		leases, err := docstore.NewLeases(t.Context(), c, "unit", orders)
		if err != nil {
			t.Fatal(err)
		}
		put := func(prefix string) {
			if _, err := c.Create(t.Context(), fmt.Appendf(nil, `{"id":%q,"LeaseToken":"0"}`,
				prefix+"..0")); err != nil {
				t.Fatal(err)
			}
		}
		own := leases.Prefix()
		put(own) // from now on the unit has this name
		if records, _, err := leases.List(t.Context()); err != nil || len(records) != 1 {
			t.Fatalf("%d records, %v, want the own one", len(records), err)
		}
		want := 1
		for _, prefix := range leases.Searched() {
			if prefix != own {
				want++
				put(prefix)
			}
		}
		records, _, err := leases.List(t.Context())
		if err != nil || len(records) != want || want == 1 {
			t.Errorf("%d records, %v, want %d, one of them own", len(records), err, want)
		}
		for _, record := range records {
			if isOwn := strings.HasPrefix(record.ID, own+".."); isOwn != (record.Err == nil) {
				t.Errorf("record %s has the error %v", record.ID, record.Err)
			}
		}
	})
}
