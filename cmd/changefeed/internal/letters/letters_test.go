package letters

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// letter is a dead letter of a change.
func letter(id, city string, lsn int64, d feed.Disposition) feed.DeadLetter {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return feed.DeadLetter{
		ID: id, Disposition: d, Cause: "no such \x1b[31maddress", Attempts: 5, Instance: "one", Lease: "-1F",
		Range:  feed.Range{Max: "1F"},
		Failed: at, Parked: at.Add(time.Minute),
		Change: feed.Change{
			ID: "order-" + id, PartitionKey: feed.Key(city), LSN: lsn, Time: at, ETag: `"0f"`,
			Body: json.RawMessage(`{"id":"order-` + id + `"}`),
		},
	}
}

// filed is a file with three letters of two keys; two of them have one id.
func filed(t *testing.T) Place {
	t.Helper()
	at := Place{File: filepath.Join(t.TempDir(), "letters.ndjson")}
	b, err := deadletters.File(at.File, "mailer")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, l := range []feed.DeadLetter{
		letter("12.0", "London", 12, feed.DispositionFailed), letter("12.0", "Paris", 12, feed.DispositionFailed),
		letter("13.0", "London", 13, feed.DispositionHeld),
	} {
		if err := b.Put(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

// listed are the letters that a query means, as "id key", and the error after them.
func listed(t *testing.T, q Query, at Place) (string, error) {
	t.Helper()
	_, letters, err := q.Read(t.Context(), nil, at)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for l, err := range letters {
		if err != nil {
			return strings.Join(names, ", "), err
		}
		names = append(names, l.ID+" "+string(l.Change.PartitionKey))
	}
	return strings.Join(names, ", "), nil
}

func TestAnArgumentIsAnAddressOrAFileThatIsThere(t *testing.T) {
	file := filed(t).File
	at, err := Parse(file)
	if err != nil || at != (Place{File: file}) {
		t.Errorf("a file: %v, %v", at, err)
	}
	at, err = Parse("cosmos:shop/letters")
	if err != nil || at.File != "" || at.Address.Container != "letters" {
		t.Errorf("an address: %v, %v", at, err)
	}
	if _, err = Parse("docstore:d"); !errors.As(err, new(usage.Error)) ||
		!strings.HasPrefix(err.Error(), `ADDRESS is "docstore:d"`) {
		t.Errorf("a wrong address: %v", err)
	}
	if _, err = Parse("nothing.ndjson"); !errors.Is(err, os.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "FILE is nothing.ndjson") {
		t.Errorf("no file: %v", err)
	}
}

func TestAQueryMeansLettersOfAUnitAKeyOrIDs(t *testing.T) {
	at := filed(t)
	for _, tt := range []struct {
		query     Query
		want, err string
	}{
		{Query{Name: "mialer"}, "", "--name is mialer: no such unit has letters here: want one of mailer, or"},
		{Query{Name: "mailer"}, `12.0 ["London"], 13.0 ["London"], 12.0 ["Paris"]`, ""},
		// a file has those of a name
		{Query{Name: "mailer", Source: "cosmos:shop/orders"}, `12.0 ["London"], 13.0 ["London"], 12.0 ["Paris"]`, ""},
		{Query{Name: "mailer", Key: feed.Key("Paris")}, `12.0 ["Paris"]`, ""},
		{Query{Name: "mailer", IDs: []string{"12.0"}}, `12.0 ["London"], 12.0 ["Paris"]`, ""},
		{
			Query{Name: "mailer", IDs: []string{"14.0", "13.0"}},
			`13.0 ["London"]`,
			`ID is 14.0: unit "mailer" has no such letter here`,
		},
		{Query{Name: "mailer", Key: feed.Key("Paris"), IDs: []string{"13.0"}}, "", `ID is 13.0`},
	} {
		got, err := listed(t, tt.query, at)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%+v: got %s, %v, want %s, %s", tt.query, got, err, tt.want, tt.err)
		}
	}
}

func TestAllLettersThatAreNamedAreDroppedOrNone(t *testing.T) {
	at := filed(t)
	const whole = `12.0 ["London"], 13.0 ["London"], 12.0 ["Paris"]`
	for _, tt := range []struct {
		query     Query
		n         int
		left, err string
	}{
		{Query{IDs: []string{"13.0", "14.0"}}, 0, whole, "ID is 14.0"},
		{Query{IDs: []string{"12.0", "13.0"}}, 0, whole, "ID is 12.0: letters of several keys have it"},
		{Query{IDs: []string{"12.0"}, Key: feed.Key("Paris")}, 1, `12.0 ["London"], 13.0 ["London"]`, ""},
		{Query{IDs: []string{"13.0"}}, 1, `12.0 ["London"]`, ""},
		{Query{}, 1, "", ""},
		{Query{}, 0, "", ""},
	} {
		tt.query.Name = "mailer"
		var warned []string
		n, err := tt.query.Drop(t.Context(), nil, at, func(text string) { warned = append(warned, text) }, surely)
		if want := tt.n > 0 && tt.query.Key == "" && tt.query.IDs != nil; (len(warned) == 1) != want ||
			want && !strings.Contains(warned[0], `["London"] was held`) {
			t.Errorf("%+v: warned %q; want that the key of a held letter stays held", tt.query, warned)
		}
		if n != tt.n || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%+v: got %d, %v, want %d, %s", tt.query, n, err, tt.n, tt.err)
		}
		if left, err := listed(t, Query{Name: "mailer"}, at); left != tt.left || err != nil {
			t.Errorf("%+v leaves %s, %v, want %s", tt.query, left, err, tt.left)
		}
	}
}

// A container for letters is known by its partition key path, which has one value everywhere.
func TestAContainerForLettersIsKnownByItsKey(t *testing.T) {
	if unit.LettersPath != deadletters.KeyPath {
		t.Errorf("the path of letters is %s for commands, and %s", unit.LettersPath, deadletters.KeyPath)
	}
}

// Without its failed letter no retry reaches the held letters of a key.
func TestADropThatStrandsHeldLettersWarns(t *testing.T) {
	const release = "changefeed dlq release FILE --name mailer --leases ADDRESS_OF_LEASES --key "
	const stays = "the key stays held until " + release
	for _, tt := range []struct {
		ids  []string
		want string
	}{
		{[]string{"12.0"}, `2 letters of ["London"] were held behind what is dropped, and no retry reaches them: ` + stays + `'["London"]'`},
		{[]string{"13.0"}, `a letter of ["London"] was held: ` + stays + `'["London"]'`},
		{[]string{"16.0"}, ""},
		{
			[]string{"13.0", "14.0", "15.0"},
			`letters of 2 keys were held, ["London"] ["Oslo"]: each key stays held until ` + release + "KEY",
		},
		{
			[]string{"12.0", "16.0", "17.0"},
			`2 letters of ["London"] were held behind what is dropped, and no retry reaches them: ` + stays +
				`'["London"]'; 1 letter of ["Rome"] was held behind what is dropped, and no retry reaches it: ` + stays + `'["Rome"]'`,
		},
	} {
		at := Place{File: filepath.Join(t.TempDir(), "letters.ndjson")}
		b, err := deadletters.File(at.File, "mailer")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []feed.DeadLetter{
			letter("12.0", "London", 12, feed.DispositionFailed), letter("13.0", "London", 13, feed.DispositionHeld),
			letter("14.0", "London", 14, feed.DispositionHeld), letter("15.0", "Oslo", 15, feed.DispositionHeld),
			letter("16.0", "Rome", 16, feed.DispositionFailed), letter("17.0", "Rome", 17, feed.DispositionFailed),
			letter("18.0", "Rome", 18, feed.DispositionHeld),
		} {
			if err := b.Put(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		var warned []string
		q := Query{Name: "mailer", IDs: tt.ids}
		n, err := q.Drop(t.Context(), nil, at, func(text string) { warned = append(warned, text) }, surely)
		said := strings.ReplaceAll(strings.Join(warned, "; "), at.File, "FILE")
		if n != len(tt.ids) || err != nil || said != tt.want {
			t.Errorf("drop of %v: %d dropped, %v, warned %q, want %q", tt.ids, n, err, said, tt.want)
		}
	}
}

func TestAFileOfLettersIsChangedByOneProcess(t *testing.T) {
	at := filed(t)
	b, err := deadletters.File(at.File, "mailer")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Query{Name: "mailer"}.Drop(t.Context(), nil, at, nil, surely)
	if !errors.Is(err, deadletters.ErrInUse) ||
		!strings.Contains(err.Error(), "stop that first") {
		t.Errorf("got %v, want that it is in use", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(at.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(at.File, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	var warned string
	if n, err := (Query{Name: "mailer"}).Drop(t.Context(), nil, at, func(text string) {
		warned = text
	}, surely); n != 2 || err != nil || !strings.Contains(warned, "was cut off") {
		t.Errorf("got %d, %v, and the warning %q", n, err, warned)
	}
}

func TestLettersInAContainerAreThoseOfTheirUnits(t *testing.T) {
	at, opener := stored(t)
	from, all, err := Query{Name: "mailer"}.Read(t.Context(), opener, at)
	if err != nil || from != "letters of default/bills and of default/orders" {
		t.Errorf("read from %q, %v", from, err)
	}
	if both, err := gather(all); len(both) != 2 || err != nil || both[0].Change.Body != nil {
		t.Errorf("gathered %v, %v, want two letters without their documents", both, err)
	}
	q := Query{Name: "mailer", Sole: true}
	if _, err := q.Drop(t.Context(), opener, at, nil, surely); !errors.As(err, new(usage.Error)) {
		t.Errorf("letters of two units: %v", err)
	}
	q.Source = "default/bills"
	if _, err := q.Drop(t.Context(), opener, at, nil, surely); !errors.As(err, new(usage.Error)) ||
		!strings.HasPrefix(err.Error(), "--source is") {
		t.Errorf("a wrong --source: %v", err)
	}
	q.Source = "cosmos:default/bills"
	if n, err := q.Drop(t.Context(), opener, at, nil, surely); n != 1 || err != nil {
		t.Errorf("dropped %d, %v, want the letter of one unit", n, err)
	}
	if from, _, err = (Query{Name: "mailer", Sole: true, Source: "cosmos:default/orders"}).Read(t.Context(), opener,
		at); from != "letters" || err != nil {
		t.Errorf("left in %q, %v", from, err)
	}
	at.Address = at.Address.Beside("orders")
	if _, _, err := q.Read(t.Context(), opener, at); err == nil || !strings.Contains(err.Error(), deadletters.KeyPath) {
		t.Errorf("a container that is not for letters: %v", err)
	}
}

// Letters of an older version do not say which unit they are of, so they may be of any.
func TestLettersOfAnOlderVersionAreOfAnyUnit(t *testing.T) {
	at,
		opener := stored(t,
		`{"id":"mailer.7.0","key":"[\"London\"]","letter":{"id":"7.0","key":["London"],"op":"create"}}`,
		`{"id":"mailer.7.1","key":"[\"Paris\"]","letter":{"id":"7.1","key":["Paris"],"op":"create"}}`)
	q := Query{Name: "mailer", Source: "cosmos:default/orders", Sole: true}
	_, all, err := q.Read(t.Context(), opener, at)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := gather(all); len(found) != 3 || err != nil {
		t.Errorf("letters of one unit: %v, %v, want both that are old", found, err)
	}
	// Each key is released once, wherever its letters are.
	q.IDs = []string{"7.0", "7.1", "12.0"}
	r := Redrive{Query: q, Letters: at, Opener: opener}
	if keys, err := r.heldKeys(t.Context()); err != nil ||
		!slices.Equal(keys, []feed.PartitionKey{feed.Key("London"), feed.Key("Paris")}) {
		t.Errorf("keys %q, %v", keys, err)
	}
}

// other is a container that was made anew: it has the name of the one before.
type other struct{ *docstore.Container }

func (other) RID() string { return "OTHER=" }

// The boxes of a name are one place: a letter is removed from the one that has it, and none that fails is passed over.
func TestBoxesAreOnePlace(t *testing.T) {
	var all boxes
	for _, name := range []string{"away", "here"} {
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		letters, orders := create(t, db, "letters", deadletters.KeyPath), create(t, db, "orders", "/city")
		for _, source := range []deadletters.Monitored{orders, other{orders}} {
			b, err := deadletters.Container(letters, "mailer", source)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
		if name == "here" {
			defer db.Close()
		} else if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := all[2:].knownSources(); !slices.Equal(got, []string{"default/orders"}) {
		t.Errorf("they read %q, want the container once that was made anew", got)
	}
	if err := all[2:].Remove(t.Context(), feed.Key("London"), "12.0"); err != nil {
		t.Errorf("a letter that no box has: %v", err)
	}
	if err := all[1:].Remove(t.Context(), feed.Key("London"), "12.0"); err == nil {
		t.Error("a box whose store is closed removes a letter")
	}
}

// stored is a container with a letter of each of two units of one name, and more documents, and an opener of its store.
func stored(t *testing.T, more ...string) (Place, *place.Opener) {
	t.Helper()
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	letters := create(t, db, "letters", deadletters.KeyPath)
	for _, source := range []string{"bills", "orders"} {
		b, err := deadletters.Container(letters, "mailer", create(t, db, source, "/city"))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Put(t.Context(), letter("12.0", "London", 12, feed.DispositionFailed)); err != nil {
			t.Fatal(err)
		}
	}
	for _, document := range more {
		if _, err := letters.Upsert(t.Context(), []byte(document)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	opener := place.NewOpener(place.Settings{})
	t.Cleanup(func() { _ = opener.Close() })
	at, err := Parse("docstore:" + dir + "#letters")
	if err != nil {
		t.Fatal(err)
	}
	return at, opener
}

func create(t *testing.T, db *docstore.DB, name, path string) *docstore.Container {
	t.Helper()
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: name, Paths: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// surely approves of every removal.
func surely(int) (bool, error) { return true, nil }
