package unload

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestAStoreThatLacksTheContainerNamesThoseThatAreThere(t *testing.T) {
	left := &Remains{Salvaged: &docstore.Salvaged{}, wanted: "customers", there: []string{"orders"}}
	if err := left.Err(); !errors.Is(err, place.ErrNoContainer) ||
		!strings.HasSuffix(err.Error(), "want one of orders") {
		t.Errorf("got %v", err)
	}
	left.there = append(left.there, "container 3")
	if err := left.Err(); !errors.Is(err, place.ErrNoContainer) ||
		!strings.HasSuffix(err.Error(),
			"want one of orders, container 3, as in --container 'container 3', which stands for one whose "+
				"name is lost") {
		t.Errorf("got %v", err)
	}
	left.there = []string{"container 3", "orders"}
	if err := left.Err(); err == nil || !strings.HasSuffix(err.Error(),
		", as in --container 'container 3', which stands for one whose name is lost") {
		t.Errorf("got %v", err)
	}
	left.wanted = "container 3"
	if err := left.Err(); err != nil {
		t.Error(err)
	}
}

// Who has asked for one container hears nothing of the others, but of the files that may have had its documents.
func TestASalvageOfOneContainerMentionsThatOneAlone(t *testing.T) {
	left := &Remains{wanted: "orders", written: 7, Salvaged: &docstore.Salvaged{
		Containers: []docstore.SalvagedContainer{{
			Name: "bills", Documents: 3, Counted: 4,
			Lost: []docstore.LSNs{{From: 20}},
		}, {Name: "orders", Documents: 7, Counted: 9}},
		Lost: []docstore.Loss{
			{File: "1.sst", Reason: "bad checksum", Container: "bills"},
			{File: "2.sst", Reason: "not there"},
		},
		Missing: []docstore.MissingItem{
			{Container: "bills", Key: `["a"]`, ID: "1", LSN: 5},
			{Container: "orders", Key: `["b"]`, ID: "2", LSN: 6},
		},
		Doubtful: []docstore.DoubtfulItem{{Container: "bills", Key: `["a"]`, ID: "3", LSN: 4}},
	}}
	left.dropUnwanted()
	var b strings.Builder
	if err := left.WriteLosses(&b); err != nil {
		t.Fatal(err)
	}
	const want = `lost: 2.sst: not there
missing: orders: item "2" of partition ["b"] as of LSN 6
container orders: 7 documents of 9
`
	if text, err := json.Marshal(left.Salvaged); err != nil || b.String() != want ||
		strings.Contains(string(text), "bills") {
		t.Errorf("got\n%s\nand %s, %v; want\n%s", b.String(), text, err, want)
	}
}

func TestLossesAreListedAndAnError(t *testing.T) {
	left := &Remains{written: 7, Salvaged: &docstore.Salvaged{
		Containers: []docstore.SalvagedContainer{{
			Name: "orders", Documents: 7, Counted: 9,
			Lost: []docstore.LSNs{{From: 10, To: 12}, {From: 20}},
		}, {Name: "container 3", Counted: -1}},
		Lost: []docstore.Loss{
			{File: "1.sst", Reason: "bad checksum", From: "05", To: "1F"},
			{File: "2.sst", Reason: "not there"},
		},
		Missing: []docstore.MissingItem{
			{Container: "orders", Key: `["a"]`, ID: "1", LSN: 5, Older: 3},
			{Container: "orders", Key: `["b"]`, ID: "2", LSN: 6},
		},
		Doubtful: []docstore.DoubtfulItem{{Container: "orders", Key: `["c"]`, ID: "3", LSN: 4}},
	}}
	var b strings.Builder
	if err := left.WriteLosses(&b); err != nil {
		t.Fatal(err)
	}
	const want = `lost: 1.sst, from 05 to before 1F: bad checksum
lost: 2.sst: not there
missing: orders: item "1" of partition ["a"] as of LSN 5; its version of LSN 3 is written
missing: orders: item "2" of partition ["b"] as of LSN 6
doubtful: orders: item "3" of partition ["c"] is written as of LSN 4; later writes of it may be lost
missing: orders: all or some of the LSNs 10 to 12; what these wrote is not known
missing: orders: all or some of the LSNs from 20 on, if there were any
container orders: 7 documents of 9, 1 of them doubtful
container container 3: 0 documents
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if err := left.Err(); err == nil ||
		err.Error() != "7 documents are written, some of them may be old, and others may be missing: what was lost "+
			"is listed above" {
		t.Errorf("got %v", err)
	}
}

// A document of a log that may be another store's is named with the log, and the error says so.
func TestADocumentOfAnotherStoresLogIsNamedWithTheLog(t *testing.T) {
	left := &Remains{written: 2, Salvaged: &docstore.Salvaged{
		Containers: []docstore.SalvagedContainer{{Name: "orders", Documents: 2, Counted: -1}},
		Lost:       []docstore.Loss{{Reason: "it counts 4 documents, and its index has 2", Container: "orders"}},
		Doubtful:   []docstore.DoubtfulItem{{Container: "orders", Key: `["c"]`, ID: "3", LSN: 4, File: "000002.log"}},
	}}
	var b strings.Builder
	if err := left.WriteLosses(&b); err != nil {
		t.Fatal(err)
	}
	const want = `lost: container orders: it counts 4 documents, and its index has 2
doubtful: orders: item "3" of partition ["c"] is written as of LSN 4; ` +
		`it comes from 000002.log and may be the item of another store
container orders: 2 documents, 1 of them doubtful
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if err := left.Err(); err == nil || !strings.Contains(err.Error(), "old or of another store") {
		t.Errorf("got %v, want an error that says that documents may be of another store", err)
	}
}

// A document of which the feed knows is missed, though every file could be read. Of an empty container nothing is.
func TestADocumentThatIsMissingIsALoss(t *testing.T) {
	left := &Remains{Salvaged: &docstore.Salvaged{Containers: []docstore.SalvagedContainer{{Name: "orders"}}}}
	var b strings.Builder
	if err := errors.Join(left.Err(), left.WriteLosses(&b)); err != nil ||
		b.String() != "container orders: 0 documents of 0\n" {
		t.Errorf("of an empty container: %q, %v", b.String(), err)
	}
	left.Missing = []docstore.MissingItem{{Container: "orders", Key: `["a"]`, ID: "1", LSN: 5}}
	if left.Err() == nil {
		t.Error("a missing document is no error")
	}
	left.Missing, left.Doubtful = nil, []docstore.DoubtfulItem{{Container: "orders", Key: `["a"]`, ID: "1", LSN: 5}}
	if left.Err() == nil {
		t.Error("a doubtful document is no error")
	}
}

// A store in which a table was damaged has lost documents, and the rest of them can be read.
func TestWhatIsLeftOfADamagedStoreIsWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for i := range 2 { // the second opening makes tables of the log
		db, err := docstore.Open(dir, docstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			fill(t, db, "orders", 3)
			fill(t, db, "bills", 2)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		container string
		key       feed.PartitionKey
		want      []string
	}{
		{"orders", "", []string{`{"id":"0","city":"a"}`, `{"id":"1","city":"b"}`, `{"id":"2","city":"a"}`}},
		{"orders", feed.Key("b"), []string{`{"id":"1","city":"b"}`}},
		{"", feed.Key("b"), []string{
			`{"container":"bills","document":{"id":"1","city":"b"}}`,
			`{"container":"orders","document":{"id":"1","city":"b"}}`,
		}},
	} {
		var b strings.Builder
		left, err := Salvage(t.Context(), dir, tt.container, &b, Options{Key: tt.key})
		if err != nil || left.Err() != nil {
			t.Fatal(err, left)
		}
		if n := len(left.Containers); tt.container != "" && n != 1 || tt.container == "" && n != 2 {
			t.Errorf("%q: a report of %d containers", tt.container, n)
		}
		got := strings.Split(strings.TrimSpace(b.String()), "\n")
		slices.Sort(got)
		if !slices.Equal(got, tt.want) || left.written != len(tt.want) {
			t.Errorf("%s, %s: got %q, %d of them counted, want %q", tt.container, tt.key, got, left.written, tt.want)
		}
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, name := range tables {
		if err := os.Truncate(name, 100); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	left, err := Salvage(t.Context(), dir, "", &b, Options{})
	if err != nil || b.Len() > 0 || len(left.Lost) == 0 || left.Err() == nil {
		t.Errorf("of cut tables: %v, %+v, %q", err, left, b.String())
	}
}

// Only a negative number is an unknown one.
func TestACountOfNoneIsKnown(t *testing.T) {
	left := Remains{Salvaged: &docstore.Salvaged{Containers: []docstore.SalvagedContainer{{Name: "c", Head: -1}}}}
	want := `"containers":[{"name":"c","documents":0,"counted":0,"head":null,"lost_lsns":[]}]`
	if got, err := report.Line(left.Line()); err != nil || !strings.Contains(string(got), want) {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
