package unload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// interruptedExport leaves an export that has some of the documents, and returns the path of its file.
func interruptedExport(t *testing.T, c *place.Container, o Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.ndjson")
	if err := exportOnce(t, path, c, o, 4); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	return path
}

// isRefused checks that an export refuses a mark by name, and leaves the file as it is.
func isRefused(t *testing.T, what, path string, c *place.Container, o Options, want string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	err = exportOnce(t, path, c, o, 100)
	after, failed := os.ReadFile(path)
	if _, ok := errors.AsType[usage.Error](err); !ok || !strings.Contains(err.Error(), path+markSuffix) ||
		!strings.Contains(err.Error(), "--restart") || !strings.Contains(err.Error(), want) ||
		string(after) != string(before) || failed != nil {
		t.Errorf("%s: got %v, want a usage error with the name of the mark, %q and --restart, and the file as it was", what,
			err, want)
	}
}

// A mark of which any byte is another one, or from which a part is missing, is refused: with it, documents could be
// left out.
func TestAMarkThatWasChangedIsRefused(t *testing.T) {
	c, _ := openStore(t, 12)
	o := Options{Range: feed.FullRange()}
	path := interruptedExport(t, c, o)
	whole, err := os.ReadFile(path + markSuffix)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, text string) {
		t.Helper()
		if text == string(whole) {
			t.Fatalf("%s: the mark %s is as it was", what, text)
		}
		if err := os.WriteFile(path+markSuffix, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		isRefused(t, what, path, c, o, "cannot be read")
	}
	for i := range whole {
		text := slices.Clone(whole)
		text[i] ^= 1
		check(fmt.Sprintf("byte %d", i), string(text))
		check(fmt.Sprintf("without byte %d", i), string(slices.Delete(text, i, i+1)))
	}
	mark := string(whole)
	check("the member left in capitals", strings.Replace(mark, `"left"`, `"LEFT"`, 1))
	check("another member", strings.Replace(mark, `"left"`, `"more":1,"left"`, 1))
	check("a member twice", strings.Replace(mark, `"left"`, `"size":0,"left"`, 1))
	check("a second mark", mark+mark)
	if err := os.WriteFile(path+markSuffix, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := exportOnce(t, path, c, o, 100); err != nil {
		t.Errorf("the mark as it was: %v", err)
	}
}

// leaves returns a function that makes a mark say that ranges are left.
func leaves(ranges ...string) func(*mark) {
	return func(m *mark) {
		m.Left = nil
		for _, r := range ranges {
			m.Left = append(m.Left, placeOf{Range: r})
		}
	}
}

// A mark whose checksum is right, but which no export leaves, is refused, too.
func TestAMarkThatDoesNotTileTheSelectionIsRefused(t *testing.T) {
	c, _ := openStore(t, 12)
	narrow := feed.Range{Max: "30"}
	for name, tt := range map[string]struct {
		key   feed.PartitionKey
		spoil func(m *mark)
		want  string
	}{
		"a negative size":      {spoil: func(m *mark) { m.Size = -1 }, want: "a size of -1"},
		"a negative number":    {spoil: func(m *mark) { m.Documents = -2 }, want: "-2 documents"},
		"nothing left":         {spoil: leaves(), want: "range -30 is missing"},
		"a gap":                {spoil: leaves("-10", "20-30"), want: "range 10-20 is missing"},
		"no range":             {spoil: func(m *mark) { m.Left[0].Range = "x" }, want: `range "x": want`},
		"a range twice":        {spoil: func(m *mark) { m.Left = append(m.Left, m.Left[0]) }, want: "overlap"},
		"an overlap":           {spoil: leaves("-20", "10-30"), want: "ranges -20 and 10-30 overlap"},
		"a range outside":      {spoil: leaves("-FF"), want: "-FF is not within range -30"},
		"nothing left of keys": {key: feed.Key("a"), spoil: leaves(), want: "there are 0 ranges"},
		"a key in two ranges":  {key: feed.Key("a"), spoil: leaves("-10", "10-30"), want: "there are 2 ranges"},
	} {
		o := Options{Range: narrow, Key: tt.key}
		path := filepath.Join(t.TempDir(), "out.ndjson")
		f, err := OpenFile(path, c, o, false)
		if err != nil {
			t.Fatal(err)
		}
		tt.spoil(&f.mark)
		text, err := f.mark.text()
		if err := errors.Join(err, f.Close(), os.WriteFile(path+markSuffix, text, 0o644)); err != nil {
			t.Fatal(err)
		}
		isRefused(t, name, path, c, o, tt.want)
	}
}

// A store that was restored from an older copy, and has got other documents since, has none of them after the positions
// of the mark. The export says so, and does not look complete.
func TestAnExportOfARestoredStoreIsRefused(t *testing.T) {
	for _, key := range []feed.PartitionKey{"", feed.Key("a")} {
		synctest.Test(t, func(t *testing.T) {
			o := Options{Range: feed.FullRange(), Key: key}
			store, older := t.TempDir(), filepath.Join(t.TempDir(), "older")
			inStore(t, store, func(c *place.Container) { putMore(t, c, "first", 4) })
			if err := os.CopyFS(older, os.DirFS(store)); err != nil {
				t.Fatal(err)
			}
			var path string
			inStore(t, store, func(c *place.Container) {
				putMore(t, c, "second", 20)
				path = interruptedExport(t, c, o)
			})
			inStore(t, older, func(c *place.Container) {
				putMore(t, c, "other", 2)
				err := exportOnce(t, path, c, o, 100000)
				if !errors.Is(err, feed.ErrAhead) || !strings.Contains(err.Error(), path+markSuffix) ||
					!strings.Contains(err.Error(), "--restart begins anew") {
					t.Errorf("key %q: got %v, want that the mark is ahead", key, err)
				}
			})
			if _, err := os.Stat(path + markSuffix); err != nil {
				t.Error(err)
			}
		})
	}
}

// inStore opens the container orders of a store, which it makes, and closes the store afterwards.
func inStore(t *testing.T, dir string, f func(*place.Container)) {
	t.Helper()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	c, err := db.Container("orders")
	if errors.Is(err, feed.ErrNotFound) {
		spec := docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}, Ranges: 2}
		c, err = db.CreateContainer(t.Context(), spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	f(&place.Container{Address: at("d", "orders"), Source: c, Local: c})
}

// putMore puts documents of two cities.
func putMore(t *testing.T, c *place.Container, name string, n int) {
	t.Helper()
	for i := range n {
		text := fmt.Appendf(nil, `{"id":"%s %d","city":%q}`, name, i, []string{"a", "b"}[i%2])
		if _, err := c.Local.Upsert(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

// Many exports begin and end with one file. Two of them never have it at once, and no lock is left.
func TestExportsThatBeginAndEndAtOnceNeverShareAFile(t *testing.T) {
	c, _ := openStore(t, 4)
	o := Options{Range: feed.FullRange()}
	path := interruptedExport(t, c, o)
	var have, shared, opened, tried atomic.Int64
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 1000 {
				tried.Add(1)
				f, err := OpenFile(path, c, o, false)
				if err != nil {
					continue
				}
				opened.Add(1)
				if have.Add(1) > 1 {
					shared.Add(1)
				}
				for before, looks := tried.Load(), 0; tried.Load() == before && looks < 1000; looks++ {
					runtime.Gosched() // until another export comes, if any is left
				}
				have.Add(-1)
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if opened.Load() == 0 || shared.Load() > 0 {
		t.Errorf("opened %d times, %d of them while another export had the file", opened.Load(), shared.Load())
	}
	if _, err := os.Stat(path + lockSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock: got %v, want none", err)
	}
}

// faulty is a source with a reader that can write no more after some reads, as if the disk was full.
type faulty struct {
	brittle
	fault func() error
}

// Read implements [feed.Source].
func (s *faulty) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	if s.reads == 1 {
		if err := s.fault(); err != nil {
			return feed.Page{}, err
		}
	}
	return s.brittle.Read(ctx, r, from, o)
}

// What an export says to have kept after it could not write is what the next call has from before.
func TestAnExportThatCannotWriteSaysWhatItHasKept(t *testing.T) {
	for name, fault := range map[string]func(f *File, path string) error{
		"the file": func(f *File, _ string) error { return f.File.Close() },
		"the mark": func(_ *File, path string) error { return os.Mkdir(path+markSuffix+".new", 0o700) },
	} {
		checkKept(t, name, fault)
	}
}

// checkKept checks what an export says to have kept after a fault.
func checkKept(t *testing.T, name string, fault func(f *File, path string) error) {
	t.Helper()
	c, _ := openStore(t, 12)
	o := Options{Range: feed.FullRange(), Count: new(atomic.Int64)}
	path := interruptedExport(t, c, o)
	f, err := OpenFile(path, c, o, false)
	if err != nil {
		t.Fatal(err)
	}
	before := f.Before
	source := faulty{brittle{c.Source, 4}, func() error { return fault(f, path) }}
	if err := f.WriteDocuments(t.Context(), &source, o); err == nil || o.Count.Load() == before || f.Kept() != before {
		t.Errorf("%s cannot be written: got %v after %d documents, %d kept, want %d kept", name, err, o.Count.Load(),
			f.Kept(), before)
	}
	_ = f.Close() // its file may be closed
	if err := os.RemoveAll(path + markSuffix + ".new"); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenFile(path, c, o, false); err != nil {
		t.Fatal(err)
	}
	if f.Before != before {
		t.Errorf("%s cannot be written: the next call has %d documents from before, want %d", name, f.Before, before)
	}
	if err := errors.Join(f.WriteDocuments(t.Context(), c.Source, o), f.Close()); err != nil || f.Kept() != 12 {
		t.Errorf("%s cannot be written: the next call: %v, %d documents kept, want 12", name, err, f.Kept())
	}
	text, err := os.ReadFile(path)
	if err != nil || len(linesWith(string(text), "id")) != 12 {
		t.Errorf("%s cannot be written: got %q, %v, want 12 documents", name, text, err)
	}
}
