package docstore_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

var faultCalls = flag.Int("fault.calls", 25,
	"how many calls of the disk fail, each in a run of its own, in each history; 0 is all of them")

// nthCall is a disk of which one call fails, be it a read or a write.
type nthCall struct {
	armed atomic.Bool
	n     int64 // which call of those since it is armed, from 1; 0 is none
	calls atomic.Int64
}

func (f *nthCall) on(fs vfs.FS) vfs.FS {
	inject := errorfs.InjectorFunc(func(errorfs.Op) error {
		if f.armed.Load() && f.calls.Add(1) == f.n {
			return syscall.EIO
		}
		return nil
	})
	return reusing{errorfs.Wrap(fs, inject), inject}
}

// shaped is a store that is written to and shaped anew, and what of that was acknowledged.
type shaped struct {
	t       *testing.T
	db      *docstore.DB
	c       *docstore.Container
	numbers map[string]int // of each document; 0 is deleted
	unsure  string         // the document whose write failed with the store
	writes  []string       // since the disk may fail, as the feed of all versions shows them
	begin   feed.Position
}

// do carries out a step, which may fail by the fault alone.
func (s *shaped) do(step string, f func() error) bool {
	s.t.Helper()
	err := f()
	if err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, docstore.ErrFailed) {
		s.t.Errorf("%s: %v", step, err)
	}
	return err == nil
}

func (s *shaped) upsert(id string, n, ttl int) {
	s.t.Helper()
	body := fmt.Sprintf(`{"id":%q,"pk":%q,"v":%d,"pad":"%0700d"`, id, id, n, n)
	if ttl != 0 {
		body += fmt.Sprintf(`,"ttl":%d`, ttl)
	}
	if s.write(id, func() error { _, err := s.c.Upsert(s.t.Context(), []byte(body+"}")); return err }) {
		s.numbers[id] = n
		s.writes = append(s.writes, fmt.Sprint(id, ":", n))
	}
}

func (s *shaped) remove(id string) {
	s.t.Helper()
	if s.write(id, func() error { return s.c.Delete(s.t.Context(), feed.Key(id), id, "") }) {
		s.numbers[id] = 0
		s.writes = append(s.writes, id+" deleted")
	}
}

func (s *shaped) write(id string, f func() error) bool {
	s.t.Helper()
	return s.do("write of "+id, func() error {
		err := f()
		if errors.Is(err, docstore.ErrFailed) && s.unsure == "" {
			s.unsure = id
		}
		return err
	})
}

// moveAll moves versions until none is left to be moved; a fault is met at most once.
func (s *shaped) moveAll() {
	for faults := 0; faults < 2; {
		more := false
		if !s.do("move", func() (err error) { more, err = s.db.MoveSome(s.c); return err }) {
			faults++
			continue
		}
		if !more {
			return
		}
	}
}

func (s *shaped) reshape(split bool) {
	parts, err := s.c.Partitions(s.t.Context())
	if err != nil {
		return // the store has failed
	}
	if split {
		s.do("split", func() error { _, err := s.c.Split(s.t.Context(), parts[0].ID); return err })
	} else if len(parts) > 1 {
		s.do("merge", func() error { _, err := s.c.Merge(s.t.Context(), parts[0].ID, parts[1].ID); return err })
	}
}

// shapings are what happens while a call of the disk fails.
var shapings = map[string]func(*shaped){
	"split and merge": func(s *shaped) {
		s.reshape(true)
		s.moveAll()
		for i := range 8 {
			s.upsert(fmt.Sprint("i", 3*i), 100+i, 0)
		}
		s.db.Sweep(s.c)
		s.reshape(false)
		s.remove("i5")
		s.moveAll()
		s.db.Sweep(s.c)
	},
	"sweep": func(s *shaped) {
		time.Sleep(2 * time.Minute) // the retention of the deletes below has not passed
		s.reshape(true)
		s.db.Sweep(s.c) // what has expired
		s.upsert("i30", 200, 0)
		s.remove("i31")
		s.db.Sweep(s.c)
	},
	"retention": func(s *shaped) {
		time.Sleep(2 * time.Hour)
		s.upsert("i1", 300, 0)
		s.db.Sweep(s.c)
		s.reshape(true)
		s.do("retention", func() error {
			_, err := s.db.UpdateContainer(s.t.Context(), "c", func(spec *docstore.ContainerSpec) error {
				spec.Retention = 0
				return nil
			})
			return err
		})
		s.db.Sweep(s.c)
		s.db.Sweep(s.c)
	},
}

// fill writes the documents of a history, some of them again, and forgets what is in memory.
func fill(t *testing.T, fs vfs.FS) *shaped {
	t.Helper()
	o := docstore.Options{CacheBytes: 1}.WithFS(fs).Small().Resting()
	db, err := docstore.Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	s := &shaped{t: t, db: db, numbers: map[string]int{}}
	s.c = container(t, db, docstore.ContainerSpec{Retention: time.Hour, DefaultTTL: new(docstore.NoDefaultTTL)})
	for n := 1; n <= 3; n++ {
		for i := range 60 / n {
			s.upsert(fmt.Sprint("i", i), n, 0)
		}
	}
	for i := range 10 {
		s.upsert(fmt.Sprint("t", i), 1, 60)
	}
	s.remove("i59")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s.open(fs)
	s.begin, s.writes = feed.At(fmt.Sprint(s.c.Head())), nil
	return s
}

func (s *shaped) open(fs vfs.FS) {
	s.t.Helper()
	var err error
	if s.db, err = docstore.Open("db", docstore.Options{CacheBytes: 1}.WithFS(fs).Small().Resting()); err != nil {
		s.t.Fatal(err)
	}
	if s.c, err = s.db.Container("c"); err != nil {
		s.t.Fatal(err)
	}
}

// verify compares the store with what was acknowledged.
func (s *shaped) verify(when string) {
	s.t.Helper()
	if err := s.db.Check(); err != nil {
		s.t.Errorf("%s: %v", when, err)
	}
	parts, err := s.c.Partitions(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	got := map[string]int{}
	var versions []string
	for _, p := range parts {
		changes, _ := drain(s.t, s.c, p.Range, feed.At("0"), feed.ReadOptions{})
		for _, ch := range changes {
			got[ch.ID] = valueOf(s.t, ch.Body)
		}
	}
	for id, want := range s.numbers {
		item, err := s.c.Item(s.t.Context(), feed.Key(id), id)
		switch {
		case id == s.unsure:
		case want == 0 || strings.HasPrefix(id, "t") && errors.Is(err, feed.ErrNotFound): // has expired
			if !errors.Is(err, feed.ErrNotFound) || got[id] != 0 {
				s.t.Errorf("%s: %s is %s, %v and %d in the feed: want none", when, id, item.Body, err, got[id])
			}
		case err != nil || valueOf(s.t, item.Body) != want || got[id] != want:
			s.t.Errorf("%s: %s is %.50s, %v, and %d in the feed: want %d", when, id, item.Body, err, got[id], want)
		}
	}
	if s.c.Retention() == 0 {
		return
	}
	for _, p := range parts {
		changes, _ := drain(s.t, s.c, p.Range, s.begin, feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
		for _, ch := range changes {
			if !strings.HasPrefix(ch.ID, "t") && ch.ID != s.unsure {
				text := ch.ID + " deleted"
				if ch.Op != feed.OpDelete {
					text = fmt.Sprint(ch.ID, ":", valueOf(s.t, ch.Body))
				}
				versions = append(versions, text)
			}
		}
	}
	want := slices.DeleteFunc(slices.Clone(s.writes), func(w string) bool {
		return s.unsure != "" && strings.HasPrefix(w, s.unsure)
	})
	slices.Sort(versions)
	slices.Sort(want)
	if !slices.Equal(versions, want) {
		s.t.Errorf("%s: the feed of all versions has %v, want %v", when, versions, want)
	}
}

// playOn has a history happen while the n-th call of the disk fails, and returns how many calls
// there were.
func playOn(t *testing.T, n int64, history func(*shaped)) (calls int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &nthCall{n: n}
		mem := vfs.NewMem()
		s := fill(t, f.on(mem))
		f.armed.Store(true)
		history(s)
		f.armed.Store(false)
		calls = f.calls.Load()
		// A store that has failed says so to everybody. Any other finds the disk as it is now.
		if err := s.db.Check(); !errors.Is(err, docstore.ErrFailed) {
			s.verify("now")
		}
		_ = s.db.Close() // a store that has failed says so again
		s.open(mem)
		s.verify("after reopening")
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return calls
}

// A call of the disk that fails once, at any moment of a split, merge, move, sweep or retention,
// leaves all that was acknowledged.
func TestACallOfTheDiskThatFailsOnceLosesNothing(t *testing.T) {
	if detector.On && *faultCalls > 0 {
		t.Skip("it takes many minutes with the race detector")
	}
	for _, name := range slices.Sorted(maps.Keys(shapings)) {
		t.Run(name, func(t *testing.T) {
			total := playOn(t, 0, shapings[name])
			t.Logf("%d calls", total)
			step := int64(1)
			if *faultCalls > 0 {
				step = max(1, total/int64(*faultCalls))
			}
			for n := int64(1); n <= total; n += step {
				if playOn(t, n, shapings[name]); t.Failed() {
					t.Fatalf("call %d of %d", n, total)
				}
			}
		})
	}
}

// A control, such as a split, a move or a change of the retention, leaves nothing if it fails.
func TestAControlThatFailsLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{Retention: time.Hour})
	upsert(t, c, "a", "p", 1)
	head, etag := c.Head(), etagOf(c)
	if err := db.FailControl(c); !errors.Is(err, docstore.ErrDisk) {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		if err := db.Check(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if _, err := db.Database("half"); !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("%s: a database of the control: %v", when, err)
		}
		if c.Head() < head || c.Count() != int64(head) || etagOf(c) != etag {
			t.Errorf("%s: head %d, %d documents, ETag %s: want %d, %d and %s", when, c.Head(), c.Count(), etagOf(c),
				head, head, etag)
		}
		changes, err := c.Read(t.Context(), feed.FullRange(), feed.At("0"),
			feed.ReadOptions{Mode: feed.AllVersionsAndDeletes})
		if err != nil || len(changes.Changes) != int(head) {
			t.Errorf("%s: %d changes, %v: want %d", when, len(changes.Changes), err, head)
		}
	}
	same("now")
	upsert(t, c, "b", "p", 1)
	if head++; c.Head() != head {
		t.Errorf("LSN %d after %d", c.Head(), head-1)
	}
	same("after a write")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = docstore.Open(dir, docstore.Options{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if c, err = db.Container("c"); err != nil {
		t.Fatal(err)
	}
	same("after reopening")
}
