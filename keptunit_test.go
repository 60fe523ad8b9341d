package changefeed_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Units that earlier versions have left are kept in testdata/units, one archive a version: a store with the leases and
// their notes, a key that is held and one that is set aside, a paused lease, the history, dead letters in a container
// and in a file, and a snapshot. Every later version has to go on with all of them.
//
//	go test -run UnitOfEveryVersion . -kept.write 0.1    # after the last change of a format before a release
var keptWrite = flag.String("kept.write", "", "leave a unit of this `version` in testdata/units")

// keptUnit is an opened unit.
type keptUnit struct {
	db      *docstore.DB
	orders  *docstore.Container
	leases  *docstore.Leases
	letters *deadletters.ContainerBox
	unit    *admin.Unit

	mu       sync.Mutex
	received []string // ids of the documents that handlers have finished, in order
}

const keptProcessor = "mailer"

// fullBox stores no further letter, so the key of a change that would be parked is set aside.
type fullBox struct{ *deadletters.ContainerBox }

func (fullBox) Put(context.Context, feed.DeadLetter) error { return errors.New("the box is full") }

// openKept opens the unit in a directory, and makes its containers if create is set.
func openKept(t *testing.T, dir string, create bool) *keptUnit {
	t.Helper()
	ctx := t.Context()
	db, err := docstore.Open(filepath.Join(dir, "store"), docstore.Options{MustExist: !create})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if create {
		for _, spec := range []docstore.ContainerSpec{
			{ID: "orders", Paths: []string{"/city"}, Ranges: 2},
			docstore.LeaseSpec("leases"),
			{ID: "letters", Paths: []string{deadletters.KeyPath}},
		} {
			if _, err := db.CreateContainer(ctx, spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	k := &keptUnit{db: db}
	all := map[string]*docstore.Container{}
	for _, name := range []string{"orders", "leases", "letters"} {
		if all[name], err = db.Container(name); err != nil {
			t.Fatal(err)
		}
	}
	k.orders = all["orders"]
	if k.leases, err = docstore.NewLeases(ctx, all["leases"], keptProcessor, k.orders); err != nil {
		t.Fatal(err)
	}
	if k.letters, err = deadletters.Container(all["letters"], keptProcessor, k.orders); err != nil {
		t.Fatal(err)
	}
	k.unit = admin.Open(k.orders, k.leases, admin.Options{By: "ada", Reason: "INC-4711"})
	return k
}

// put writes a document.
func (k *keptUnit) put(t *testing.T, city, id string) {
	t.Helper()
	if _, err := k.orders.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"city":%q}`, id, city)); err != nil {
		t.Fatal(err)
	}
}

// runUntil runs an instance whose handler fails for some ids, until the condition holds.
func (k *keptUnit) runUntil(t *testing.T, box feed.LetterBox, fails []string, done func(p *changefeed.Processor) bool) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		for _, c := range b.Changes {
			if slices.Contains(fails, c.ID) {
				return errors.New("no such address")
			}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, c := range b.Changes {
			k.received = append(k.received, c.ID)
		}
		return nil
	})
	p, err := changefeed.New(k.orders, k.leases, handler, changefeed.Options{
		Start: feed.FromBeginning(), Concurrency: 4, Acquire: 100 * time.Millisecond, Poll: 50 * time.Millisecond,
		OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box, HoldKeys: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !done(p) && ctx.Err() == nil {
		<-poll.C
	}
	if ctx.Err() != nil {
		t.Errorf("the unit did not get there: %+v", p.Status())
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// has reports whether all ids were received.
func (k *keptUnit) has(ids ...string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(k.received, id) })
}

// leaveUnit makes a unit in a directory, and leaves it in the middle of everything.
func leaveUnit(t *testing.T, dir string) {
	k := openKept(t, dir, true)
	for n := range 6 {
		k.put(t, fmt.Sprint("city-", n), fmt.Sprint("plain-", n))
	}
	k.put(t, "Oslo", "poison")
	k.put(t, "Oslo", "after-poison")
	k.runUntil(t, k.letters, []string{"poison"}, func(*changefeed.Processor) bool {
		return len(lettersOf(t, k.letters.Letters(t.Context(), feed.Key("Oslo")))) == 2 && k.has("plain-0", "plain-5")
	})
	k.put(t, "Rome", "stuck")
	for n := range 20 {
		k.put(t, "Rome", fmt.Sprint("behind-", n))
	}
	k.runUntil(t, fullBox{k.letters}, []string{"stuck"}, func(p *changefeed.Processor) bool {
		return slices.ContainsFunc(p.Status(), func(s changefeed.Status) bool {
			return slices.ContainsFunc(s.Leases, func(l feed.LeaseStatus) bool { return l.SetAside > 0 })
		})
	})
	s, err := k.unit.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "snapshot.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.unit.Pause(t.Context(), admin.All()); err != nil {
		t.Fatal(err)
	}
	box, err := deadletters.File(filepath.Join(dir, "letters.ndjson"), keptProcessor)
	if err != nil {
		t.Fatal(err)
	}
	for _, letter := range lettersOf(t, k.letters.Letters(t.Context(), feed.Key("Oslo"))) {
		if err := box.Put(t.Context(), letter); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(box.Close(), k.db.Close()); err != nil {
		t.Fatal(err)
	}
}

// lettersOf collects letters.
func lettersOf(t *testing.T, found func(func(feed.DeadLetter, error) bool)) (all []feed.DeadLetter) {
	t.Helper()
	for letter, err := range found {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, letter)
	}
	return all
}

func TestUnitOfEveryVersionGoesOn(t *testing.T) {
	folder := filepath.Join("testdata", "units")
	if *keptWrite != "" {
		dir := t.TempDir()
		leaveUnit(t, dir)
		packTree(t, dir, filepath.Join(folder, *keptWrite+".tar.gz"))
	}
	archives, err := filepath.Glob(filepath.Join(folder, "*.tar.gz"))
	if err != nil || len(archives) < 2 {
		t.Fatalf("%d archives, %v: want one of each version", len(archives), err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			unpackTree(t, archive, dir)
			takeOver(t, dir)
		})
	}
}

// takeOver checks what an earlier version has left, and goes on with it.
func takeOver(t *testing.T, dir string) {
	k := openKept(t, dir, false)
	ctx := t.Context()
	f, err := os.Open(filepath.Join(dir, "snapshot.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := admin.ReadSnapshot(f)
	if err != nil || len(s.Leases) != 2 {
		t.Errorf("snapshot %+v, %v: want two leases", s, err)
	}
	entries, err := k.unit.History(ctx)
	if err != nil || len(entries) != 1 || entries[0].By != "ada" || entries[0].Action != admin.ActionPause {
		t.Errorf("history %+v, %v: want the pause by ada", entries, err)
	}
	all, err := k.unit.List(ctx)
	if err != nil || len(all.Leases) != 2 {
		t.Fatalf("leases %+v, %v: want two", all, err)
	}
	aside, held := 0, 0
	for _, lease := range all.Leases {
		aside, held = aside+len(lease.SetAside), held+len(lease.Held)
		if lease.State != admin.StatePaused {
			t.Errorf("lease %s is not paused", lease.Token)
		}
	}
	if aside != 1 || held != 1 {
		t.Errorf("%d keys are set aside and %d held: want one each", aside, held)
	}
	oslo := feed.Key("Oslo")
	boxed := lettersOf(t, k.letters.Letters(ctx, oslo))
	filed := lettersOf(t, deadletters.ReadFile(ctx, filepath.Join(dir, "letters.ndjson"), keptProcessor))
	for _, letters := range [][]feed.DeadLetter{boxed, filed} {
		if len(letters) != 2 || letters[0].Change.ID != "poison" || letters[0].Cause != "no such address" ||
			!strings.Contains(string(letters[0].Change.Body), `"id":"poison"`) {
			t.Errorf("letters %+v: want that of poison, and the one behind it", letters)
		}
	}
	if _, err := k.unit.Resume(ctx, admin.All()); err != nil {
		t.Fatal(err)
	}
	k.put(t, "city-1", "new")
	asked := make(chan error, 1)
	go func() {
		o, err := deadletters.Redrive(ctx, k.orders, k.leases, oslo, boxed[0].ID)
		if err == nil && (o.Result != deadletters.ResultHandled || o.Handled != 2) {
			err = fmt.Errorf("the letter is %+v: want it handled, with the held one", o)
		}
		asked <- err
	}()
	k.runUntil(t, k.letters, nil, func(*changefeed.Processor) bool {
		// The answer comes after the letter was handled, and a processor that has stopped gives none.
		return len(asked) > 0 && k.has("new", "stuck", "behind-0", "behind-19", "poison", "after-poison")
	})
	if err := <-asked; err != nil {
		t.Error(err)
	}
	if slices.Index(k.received, "stuck") > slices.Index(k.received, "behind-0") || k.has("plain-0") {
		t.Errorf("received %v: want stuck before what is behind it, and nothing that was done before", k.received)
	}
}

// packTree packs the files below a directory.
func packTree(t *testing.T, dir, to string) {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, ".lock") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	if err := errors.Join(err, w.Close(), z.Close(), os.MkdirAll(filepath.Dir(to), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unpackTree is the reverse of packTree.
func unpackTree(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
}
