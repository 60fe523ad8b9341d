package unload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// fill makes a container with documents of two cities in turns.
func fill(t *testing.T, db *docstore.DB, name string, n int) *docstore.Container {
	t.Helper()
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: name, Paths: []string{"/city"}, Ranges: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","city":%q}`, i,
			[]string{"a", "b"}[i%2])); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestDocumentsAreWrittenAsTheyWereGiven(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := fill(t, db, "orders", 4)
	parts, err := c.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	export := func(o Options) []string {
		var b strings.Builder
		if err := Documents(t.Context(), c, &b, o); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
	all := export(Options{Range: feed.FullRange()})
	of := func(city string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(line string) bool { return !strings.Contains(line, city) })
	}
	if a, b := of(`"a"`), of(`"b"`); !slices.Equal(a, []string{`{"id":"0","city":"a"}`, `{"id":"2","city":"a"}`}) ||
		!slices.Equal(b, []string{`{"id":"1","city":"b"}`, `{"id":"3","city":"b"}`}) || len(all) != 4 {
		t.Errorf("got %q, want each document, those of a key in the order of their writes", all)
	}
	if got := export(Options{Range: feed.FullRange(), Key: feed.Key("b")}); !slices.Equal(got, of(`"b"`)) {
		t.Errorf("of a key: %q", got)
	}
	if got := slices.Concat(export(Options{Range: parts[0].Range}),
		export(Options{Range: parts[1].Range})); len(strings.Join(got, "")) != len(strings.Join(all, "")) {
		t.Errorf("of both partitions: %q", got)
	}
	if got := export(Options{Range: feed.FullRange(), System: true}); len(got) != 4 ||
		!strings.Contains(got[0], `"_etag":`) {
		t.Errorf("with the system's: %q", got)
	}
}

// Half an export must not look like a whole one.
func TestAnExportThatIsInterruptedIsAnError(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := fill(t, db, "orders", 4)
	ctx, end := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	end(interrupted)
	if err := Documents(ctx, c, &strings.Builder{}, Options{Range: feed.FullRange()}); !errors.Is(err, interrupted) {
		t.Errorf("got %v", err)
	}
}

// An export that fails ends with a whole document, so that what is there can be used.
func TestAnExportThatBreaksOffEndsWithAWholeDocument(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := fill(t, db, "orders", 4)
	broken := errors.New("broken")
	var out strings.Builder
	err = Documents(t.Context(), breaking{c, broken}, &out, Options{Range: feed.FullRange(), Key: feed.Key("a")})
	if !errors.Is(err, broken) || strings.Count(out.String(), "\n") != 2 || !strings.HasSuffix(out.String(), "}\n") {
		t.Errorf("got %v, and %q, want 2 documents", err, out.String())
	}
}

// breaking is a source that has two documents and then breaks.
type breaking struct {
	feed.Source
	err error
}

// Read implements [feed.Source].
func (s breaking) Read(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
	if from.Token != "" {
		return feed.Page{}, s.err
	}
	o.MaxItems = 2
	return s.Source.Read(ctx, r, from, o)
}
