package unload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

var errBroken = errors.New("broken")

// brittle is a source with small pages that breaks after some reads. Like an account, it reads one partition at a time.
type brittle struct {
	feed.Source
	reads int
}

// Read implements [feed.Source].
func (s *brittle) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	if s.reads--; s.reads < 0 {
		return feed.Page{}, errBroken
	}
	parts, err := s.Partitions(ctx)
	if err != nil {
		return feed.Page{}, err
	}
	if !slices.ContainsFunc(parts, func(p feed.Partition) bool { return p.Range.Contains(r) }) {
		return feed.Page{}, feed.ErrGone
	}
	o.MaxItems = 2
	return s.Source.Read(ctx, r, from, o)
}

// Locate implements [feed.Locator].
func (s *brittle) Locate(ctx context.Context, key feed.PartitionKey) (string, error) {
	return s.Source.(feed.Locator).Locate(ctx, key)
}

// at returns the address of a container in a store.
func at(dir, name string) place.Address {
	return place.Address{Dir: dir, Database: docstore.DefaultDatabase, Container: name}
}

// openStore opens a store with the container orders, and with a number of documents in it.
func openStore(t *testing.T, documents int) (*place.Container, *docstore.Container) {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := fill(t, db, "orders", documents)
	return &place.Container{Address: at("d", "orders"), Source: c, Local: c}, c
}

// exportOnce exports into a file with a source that breaks after some reads, and returns the error.
func exportOnce(t *testing.T, path string, c *place.Container, o Options, reads int) error {
	t.Helper()
	f, err := OpenFile(path, c, o, false)
	if err != nil {
		return err
	}
	err = f.WriteDocuments(t.Context(), &brittle{c.Source, reads}, o)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return err
}

// An export that breaks after any number of reads, and leaves lines that its mark does not know, has each document once
// in the end, and those of a key in the order of their writes; also if a partition is split meanwhile.
func TestAnExportGoesOnWithoutLosingOrRepeatingADocument(t *testing.T) {
	for _, o := range []Options{{Range: feed.FullRange()}, {Range: feed.FullRange(), Key: feed.Key("a")}} {
		for _, split := range []bool{false, true} {
			for reads := range 14 {
				checkGoesOn(t, o, reads, split)
			}
		}
	}
}

// checkGoesOn breaks an export after some reads twice, and checks what is in the file at the end.
func checkGoesOn(t *testing.T, o Options, reads int, split bool) {
	t.Helper()
	c, store := openStore(t, 12)
	path := filepath.Join(t.TempDir(), "out.ndjson")
	whole := &strings.Builder{}
	if err := Documents(t.Context(), c.Source, whole, o); err != nil {
		t.Fatal(err)
	}
	broken := 0
	for range 2 {
		if err := exportOnce(t, path, c, o, reads); errors.Is(err, errBroken) {
			broken++
			lengthen(t, path)
		} else if err != nil {
			t.Fatal(err)
		} else {
			break
		}
		if split && broken == 1 {
			splitFirst(t, store)
		}
	}
	if broken == 2 {
		if err := exportOnce(t, path, c, o, 100); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, city := range []string{`"a"`, `"b"`} {
		if got, want := linesWith(string(text), city), linesWith(whole.String(), city); !slices.Equal(got, want) {
			t.Errorf("broken after %d reads %d times, split: %v: of %s there are %q, want %q", reads, broken, split, city,
				got, want)
		}
	}
	if left, err := filepath.Glob(path + ".*"); len(left) > 0 || err != nil {
		t.Errorf("left are %q, %v", left, err)
	}
}

// lengthen adds to a file what a killed export may leave behind its mark.
func lengthen(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"id\":\"9\",\"city\":\"a\"}\n{\"id\":\"1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// splitFirst splits the first partition.
func splitFirst(t *testing.T, c *docstore.Container) {
	t.Helper()
	parts, err := c.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Split(t.Context(), parts[0].ID); err != nil {
		t.Fatal(err)
	}
}

// linesWith returns the lines that contain a text.
func linesWith(text, with string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, with) {
			lines = append(lines, line)
		}
	}
	return lines
}

// A file that is not what an interrupted export of the same documents has left is refused, and stays as it is.
func TestAnExportRefusesTheFileOfSomethingElse(t *testing.T) {
	c, _ := openStore(t, 6)
	all := Options{Range: feed.FullRange()}
	for name, tt := range map[string]struct {
		spoil func(path string) error
		from  *place.Container
		o     Options
		want  string
	}{
		"a file without a mark": {
			spoil: func(path string) error { return os.Remove(path + markSuffix) },
			want:  "want a file that does not exist yet",
		},
		"a cut file": {
			spoil: func(path string) error { return os.Truncate(path, 3) },
			want:  "the file has been changed; --restart begins anew",
		},
		"an edited file": {
			spoil: func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 1000)), 0o644) },
			want:  "the file has been changed; --restart begins anew",
		},
		"no file": {spoil: os.Remove, want: "which is gone, although its mark"},
		"a bad mark": {
			spoil: func(path string) error { return os.WriteFile(path+markSuffix, nil, 0o644) },
			want:  "cannot be read",
		},
		"another container": {
			from: &place.Container{Address: at("d", "bills"), Source: c.Source, Local: c.Local},
			want: "an interrupted export of orders has left this one, which goes on only with that container",
		},
		"another store": {
			from: &place.Container{Address: at("e", "orders"), Source: c.Source, Local: c.Local},
			want: "made anew since, or is in another store",
		},
		"another key": {
			o:    Options{Range: feed.FullRange(), Key: feed.Key("a")},
			want: "goes on only with the same selection, --range -FF;",
		},
	} {
		path := filepath.Join(t.TempDir(), "out.ndjson")
		if err := exportOnce(t, path, c, all, 3); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		if tt.spoil != nil {
			if err := tt.spoil(path); err != nil {
				t.Fatal(err)
			}
		}
		if tt.from == nil {
			tt.from = c
		}
		if tt.o == (Options{}) {
			tt.o = all
		}
		before, _ := os.ReadFile(path) // there may be none
		err := exportOnce(t, path, tt.from, tt.o, 100)
		after, _ := os.ReadFile(path)
		if _, ok := errors.AsType[usage.Error](err); !ok || !strings.Contains(err.Error(), tt.want) ||
			string(after) != string(before) {
			t.Errorf("%s: got %v and %q, want a usage error with %q, and the file as it was", name, err, after, tt.want)
		}
	}
}

// Two exports do not write one file, and the second says so.
func TestAFileHasOneExportAtATime(t *testing.T) {
	c, _ := openStore(t, 2)
	path := filepath.Join(t.TempDir(), "out.ndjson")
	o := Options{Range: feed.FullRange()}
	f, err := OpenFile(path, c, o, false)
	if err != nil {
		t.Fatal(err)
	}
	const want = "another export writes this file"
	if _, err := OpenFile(path, c, o, true); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the second export: got %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = OpenFile(path, c, o, true); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.WriteDocuments(t.Context(), c.Source, o), f.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || len(linesWith(string(text), "id")) != 2 {
		t.Errorf("got %q, %v, want 2 documents", text, err)
	}
}

// A restart leaves nothing of a file that was longer, whether an interrupted export has left it or not.
func TestARestartOverwritesTheWholeFile(t *testing.T) {
	c, _ := openStore(t, 6)
	o := Options{Range: feed.FullRange()}
	whole := &strings.Builder{}
	if err := Documents(t.Context(), c.Source, whole, o); err != nil {
		t.Fatal(err)
	}
	for _, interrupted := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "out.ndjson")
		if interrupted {
			if err := exportOnce(t, path, c, o, 2); !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, []byte(strings.Repeat("old\n", 1000)), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path, c, o, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.WriteDocuments(t.Context(), c.Source, o), f.Close()); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != whole.String() {
			t.Errorf("interrupted before: %v: got %d bytes, %v, want the %d of all documents", interrupted, len(text),
				err, whole.Len())
		}
	}
}

// After any number of interruptions the count is that of all documents in the file.
func TestTheCountOfAnExportGoesOn(t *testing.T) {
	c, _ := openStore(t, 12)
	path := filepath.Join(t.TempDir(), "out.ndjson")
	for call, reads := range []int{2, 2, 100} {
		o := Options{Range: feed.FullRange(), Count: new(atomic.Int64)}
		if err := exportOnce(t, path, c, o, reads); (err == nil) != (reads == 100) {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if n := int64(strings.Count(string(text), "\n")); err != nil || o.Count.Load() != n || n == 0 {
			t.Errorf("call %d: counted %d documents, %v, and the file has %d", call+1, o.Count.Load(), err, n)
		}
	}
}

// What is left of places that a page has advanced tiles them.
func TestAPageAdvancesThePartThatItRead(t *testing.T) {
	for _, c := range []struct{ part, want string }{
		{"-20", "[{-20 x} {20-FF b}]"},
		{"05-10", "[{-05 a} {10-20 a} {05-10 x} {20-FF b}]"},
		{"20-30", "[{-20 a} {30-FF b} {20-30 x}]"},
	} {
		part, err := feed.ParseRange(c.part)
		if err != nil {
			t.Fatal(err)
		}
		got := advance([]position{{feed.Range{Max: "20"}, "a"}, {feed.Range{Min: "20", Max: "FF"}, "b"}}, part, "x")
		var text []string
		for _, p := range got {
			text = append(text, fmt.Sprintf("{%s %s}", p.Range, p.after))
		}
		if fmt.Sprint(text) != c.want {
			t.Errorf("%s: got %v, want %s", c.part, text, c.want)
		}
	}
}
