package docstore_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestLocate(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{Ranges: 4})
	seen := map[string]bool{}
	for i := range 50 {
		place, err := c.Locate(t.Context(), feed.Key(fmt.Sprint("k", i)))
		if err != nil {
			t.Fatal(err)
		}
		p := c.PartitionAt(place)
		if !p.Range.Holds(place) {
			t.Errorf("key k%d is at %s, and its partition %s is %s", i, place, p.ID, p.Range)
		}
		seen[p.ID] = true
	}
	if len(seen) != 4 {
		t.Errorf("50 keys are in %d of 4 partitions", len(seen))
	}
	for key, want := range map[feed.PartitionKey]error{
		`x`: feed.ErrBadRequest, `[["a"]]`: feed.ErrBadRequest, `["a","b"]`: docstore.ErrKeyMismatch,
		`[]`: docstore.ErrKeyMismatch,
	} {
		if _, err := c.Locate(t.Context(), key); !errors.Is(err, want) || !strings.Contains(err.Error(), `"c"`) {
			t.Errorf("locate %s: %v, want %v", key, err, want)
		}
	}
}

// A hash of version 1 has the first hundred characters of a text only, so several keys may have the same place. They
// are different logical partitions.
func TestAKeyHasNoDocumentsOfAnotherKeyInItsPlace(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{HashVersion: 1})
	long := strings.Repeat("x", 120)
	keys := []string{long + "a", long + "b"}
	var places []string
	for _, key := range keys {
		upsert(t, c, "same id", key, 1)
		place, err := c.Locate(t.Context(), feed.Key(key))
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, place)
	}
	if places[0] != places[1] {
		t.Fatalf("the keys are at %s and %s: the test shows nothing", places[0], places[1])
	}
	for _, key := range keys {
		for item, err := range c.Logical(t.Context(), feed.Key(key), 0) {
			if err != nil || item.Key != feed.Key(key) {
				t.Errorf("the documents of %s contain one of %s, %v", feed.Key(key), item.Key, err)
			}
		}
	}
}

func TestAPrefixOfAKeyHasTheRangeOfAllItsKeys(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{Paths: []string{"/a", "/b"}, Ranges: 2})
	prefix, err := c.LogicalPartition(feed.Key("x"))
	if err != nil || prefix.Whole() {
		t.Fatalf("key x is whole: %v, %v", prefix.Whole(), err)
	}
	if place, err := c.Locate(t.Context(), prefix.Key()); !errors.Is(err, docstore.ErrKeyMismatch) {
		t.Errorf("key x is at %s, %v, want an error: it is that of no document", place, err)
	}
	for i := range 5 {
		place, err := c.Locate(t.Context(), feed.Key("x", i))
		if err != nil || !prefix.Range().Holds(place) {
			t.Errorf("key x, %d is at %s, %v, want within %s", i, place, err, prefix.Range())
		}
	}
	if other, err := c.Locate(t.Context(), feed.Key("y", 1)); err != nil || prefix.Range().Holds(other) {
		t.Errorf("key y is at %s, %v, within %s", other, err, prefix.Range())
	}
}

func TestNewest(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{Ranges: 2})
	last := map[string]int64{} // by partition
	at := map[string]string{}
	for i := range 20 {
		key := fmt.Sprint("k", i)
		it := upsert(t, c, "1", key, i)
		place, err := c.Locate(t.Context(), it.Key)
		if err != nil {
			t.Fatal(err)
		}
		id := c.PartitionAt(place).ID
		last[id], at[id] = it.LSN, place
	}
	for id, want := range last {
		if got := c.Newest(at[id]); got != want {
			t.Errorf("newest LSN of partition %s is %d, want %d", id, got, want)
		}
	}
	made, err := c.Split(t.Context(), c.PartitionAt("").ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range made {
		if got, want := c.Newest(p.Range.Min), last[p.Parents[0]]; got != want {
			t.Errorf("after the split, the newest LSN of partition %s is %d, want its parent's %d", p.ID, got, want)
		}
	}
}

func TestKeyOf(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{Paths: []string{"/a", "/b/c"}})
	for body, want := range map[string]feed.PartitionKey{
		`{"id":"1","a":"x","b":{"c":5}}`: feed.Key("x", 5),
		`{"id":"1","b":7,"a":null}`:      feed.Key(nil, feed.Undefined),
		`{"id":"1","b":{"c":{}},"a":[]}`: feed.Key(feed.Undefined, feed.Undefined),
	} {
		if got, err := c.KeyOf([]byte(body)); err != nil || got != want {
			t.Errorf("key of %s is %s, %v, want %s", body, got, err, want)
		}
	}
	if _, err := c.KeyOf([]byte(`{"id":"1","a":1e999}`)); !errors.Is(err, feed.ErrBadRequest) {
		t.Errorf("key of a body with a number out of range: %v", err)
	}
}

// found are the items as "id@LSN".
func found(t *testing.T, items iter.Seq2[docstore.Item, error]) []string {
	t.Helper()
	var all []string
	for it, err := range items {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s@%d", it.ID, it.LSN))
	}
	return all
}

func TestLogical(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{})
	p := feed.Key("p")
	for i, id := range []string{"d", "b", "a", "c"} { // LSN 1, 3, 5, 7
		upsert(t, c, id, "p", i)
		upsert(t, c, id, "q", i)
	}
	upsert(t, c, "b", "p", 9) // LSN 9
	if err := c.Delete(t.Context(), p, "a", ""); err != nil {
		t.Fatal(err)
	}
	writes := []feed.Write{{Body: []byte(`{"id":"z","pk":"p"}`)}, {Body: []byte(`{"id":"y","pk":"p"}`)}}
	if _, err := c.Commit(t.Context(), p, writes); err != nil { // LSN 11
		t.Fatal(err)
	}
	all := []string{"d@1", "b@9", "c@7", "z@11", "y@11"}
	for after, want := range map[int64][]string{
		0: all, 1 << 8: all[1:], 2<<8 - 1: all[1:], 3 << 8: all[2:], 10 << 8: all[3:], 11 << 8: all[4:], 11<<8 + 1: nil,
	} {
		if got := found(t, c.Logical(t.Context(), p, after)); !slices.Equal(got, want) {
			t.Errorf("items behind number %d are %v, want %v", after, got, want)
		}
	}
	if got := found(t, c.Logical(t.Context(), feed.Key("none"), 0)); len(got) != 0 {
		t.Errorf("a key without items has %v", got)
	}
	for _, err := range c.Logical(t.Context(), `["a","b"]`, 0) {
		if !errors.Is(err, docstore.ErrKeyMismatch) {
			t.Errorf("a key with too many components: %v", err)
		}
	}
	for it, err := range c.Logical(t.Context(), p, 0) { // a reader may stop
		if err != nil || it.ID != "d" {
			t.Errorf("first is %s, %v", it.ID, err)
		}
		break
	}
}

func TestLogicalPrefix(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{Paths: []string{"/a", "/b"}, Ranges: 4})
	for i := range 6 {
		body := fmt.Appendf(nil, `{"id":"%d","a":"%s","b":%d}`, i, []string{"x", "y"}[i%2], i)
		if _, err := c.Upsert(t.Context(), body); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := found(t, c.Logical(t.Context(), feed.Key("x"), 1<<8)), []string{"2@3", "4@5"}; !slices.Equal(got,
		want) {
		t.Errorf("items under x behind number 256 are %v, want %v", got, want)
	}
	if got, want := found(t, c.Logical(t.Context(), feed.Key("y", 3), 0)), []string{"3@4"}; !slices.Equal(got, want) {
		t.Errorf("items under y, 3 are %v, want %v", got, want)
	}
}

func TestWithIDs(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{Paths: []string{"/id"}, Ranges: 2})
	if !c.HasIDIndex() {
		t.Fatal("no index by id with the partition key /id")
	}
	for _, id := range []string{"app..2", "app..1", "other", "app", "app..3"} {
		if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q}`, id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(t.Context(), feed.Key("app..1"), "app..1", ""); err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string][]string{
		"app..": {"app..2@1", "app..3@5"}, "app": {"app..2@1", "app@4", "app..3@5"}, "x": nil,
		"": {"app..2@1", "other@3", "app@4", "app..3@5"},
	} {
		if got := found(t, c.WithIDs(t.Context(), prefix, 0)); !slices.Equal(got, want) {
			t.Errorf("ids that begin with %q: %v, want %v", prefix, got, want)
		}
	}
	if got, want := found(t, c.WithIDs(t.Context(), "app", 1<<8)), []string{"app@4", "app..3@5"}; !slices.Equal(got,
		want) {
		t.Errorf("ids behind number 256: %v, want %v", got, want)
	}
	plain := container(t, db, docstore.ContainerSpec{ID: "plain"})
	for _, err := range plain.WithIDs(t.Context(), "a", 0) {
		if plain.HasIDIndex() || !errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("a container without the index: %v, want a bad request", err)
		}
	}
}

func TestNamed(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{Ranges: 2})
	for i := range 2000 {
		upsert(t, c, fmt.Sprint("i", i%1000), fmt.Sprint("p", i/500), i) // each id in two keys
	}
	upsert(t, c, "i7", "p0", 1)
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, test := range []struct {
		ids   []string
		after int64
		want  []string
	}{
		{[]string{"i7", "i501", "none"}, 0, []string{"i7@2001", "i501@502", "i7@1008", "i501@1502"}},
		{[]string{"i7", "i501"}, 502 << 8, []string{"i7@1008", "i501@1502"}},
		{[]string{"none"}, 0, nil},
		{nil, 0, nil},
	} {
		got := found(t, s.Named(t.Context(), feed.FullRange(), test.ids, test.after))
		if !slices.Equal(got, test.want) {
			t.Errorf("items %v after %d: %v, want %v", test.ids, test.after, got, test.want)
		}
	}
	var both []string
	for _, p := range s.Partitions() {
		both = append(both, found(t, s.Named(t.Context(), p.Range, []string{"i7", "i501"}, 0))...)
	}
	slices.Sort(both)
	if want := []string{"i501@1502", "i501@502", "i7@1008", "i7@2001"}; !slices.Equal(both, want) {
		t.Errorf("by partition: %v, want %v", both, want)
	}
}

func TestCommitWithConditions(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{})
	first := upsert(t, c, "a", "p", 1)
	var saw string
	is := func(v int) docstore.Condition {
		return func(body []byte) (bool, error) {
			saw = string(body)
			return strings.Contains(saw, fmt.Sprintf(`"v":%d,`, v)), nil
		}
	}
	a := func(v int, cond docstore.Condition) docstore.Write {
		return docstore.Write{Write: feed.Write{Body: fmt.Appendf(nil, `{"id":"a","pk":"p","v":%d}`, v)}, If: cond}
	}
	p, err := c.LogicalPartition(feed.Key("p"))
	if err != nil {
		t.Fatal(err)
	}
	commit := func(writes ...docstore.Write) ([]feed.Result, error) {
		done, err := p.Commit(t.Context(), writes)
		if part, newest := p.Partition(); done.Partition.ID != part.ID || done.Newest != newest || newest != c.Head() {
			t.Errorf("partition %s is at LSN %d, want %s at %d, the head %d", done.Partition.ID, done.Newest, part.ID,
				newest, c.Head())
		}
		charge := 0.0
		for _, r := range done.Results {
			charge += r.Charge
		}
		if err == nil && (charge != done.Charge || charge != 5.5*float64(len(writes))) ||
			err != nil && done.Charge != 1 {
			t.Errorf("%d writes are charged %v together and %v one by one, want 5.5 each, or 1: %v", len(writes),
				done.Charge, charge, err)
		}
		return done.Results, err
	}
	if _, err := commit(a(2, is(1))); err != nil || saw != string(first.Body) {
		t.Fatalf("a condition that is met: %v; it saw %s, want %s", err, saw, first.Body)
	}
	missing := docstore.Write{Write: feed.Write{Body: []byte(`{"id":"b","pk":"p"}`)}, If: is(7)}
	if r, err := commit(missing); err != nil || !r[0].Created {
		t.Fatalf("a condition on a document that is missing: %+v, %v", r, err)
	}
	// The second write sees what the first has done; the batch is refused as a whole.
	head := c.Head()
	_, err = commit(a(3, nil), a(4, is(2)))
	if e, ok := errors.AsType[*feed.WriteError](err); !ok || e.Index != 1 || !errors.Is(err, feed.ErrPrecondition) ||
		!strings.Contains(saw, `"v":3`) {
		t.Fatalf("a condition that is not met: %v, having seen %s", err, saw)
	}
	if it, err := c.Item(t.Context(), feed.Key("p"), "a"); err != nil || !strings.Contains(string(it.Body), `"v":2`) ||
		c.Head() != head {
		t.Fatalf("afterwards the item is %s, %v, and the head %d", it.Body, err, c.Head())
	}
	failing := func([]byte) (bool, error) { return true, fmt.Errorf("%w: odd", feed.ErrBadRequest) }
	if _, err := commit(a(5, failing)); !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), "odd") {
		t.Fatalf("a condition that fails: %v", err)
	}
	panicking := func([]byte) (bool, error) { return (*struct{ met bool })(nil).met, nil }
	if _, err := commit(a(5, panicking)); err == nil || !strings.Contains(err.Error(), "condition panicked") {
		t.Fatalf("a condition that panics: %v", err)
	}
	if _, err := c.Commit(t.Context(), "", []feed.Write{a(5, nil).Write}); !errors.Is(err, feed.ErrBadRequest) {
		t.Fatalf("a batch without a key: %v", err)
	}
}

func TestKeyMismatch(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{})
	w := []feed.Write{{Body: []byte(`{"id":"a","pk":"p"}`)}}
	for _, key := range []feed.PartitionKey{`["q"]`, `["p","q"]`} {
		if _, err := c.Commit(t.Context(), key, w); !errors.Is(err, docstore.ErrKeyMismatch) ||
			!errors.Is(err, feed.ErrBadRequest) {
			t.Errorf("an item of key p under %s: %v, want a mismatch", key, err)
		}
	}
}
