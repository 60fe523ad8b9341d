package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
)

// damagedStore is a store with a damaged block of documents in each table.
func damagedStore(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range 2 { // the second opening makes tables of the log
		db, err := docstore.Open(dir, docstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}})
			if err != nil {
				t.Fatal(err)
			}
			for j := range 500 {
				if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"p","pad":%q}`, j,
					strings.Repeat(fmt.Sprint(j), 100))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, name := range tables {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/3] ^= 0x5a
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestACheckOfADamagedStoreEndsWithOne(t *testing.T) {
	dir := damagedStore(t)
	if code := execute(t.Context(), []string{"check", dir}, io.Discard, io.Discard); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if code := execute(t.Context(), []string{"backup", dir, copied}, io.Discard, io.Discard); code != exitFailed {
		t.Errorf("backup: exit code %d, want %d", code, exitFailed)
	}
}

// deficientStore is a store whose files are sound and that lacks a record: one document has no version in the feed.
func deficientStore(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	in := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, generated(5), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#c", "--pk", "/outcode")
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		t.Fatal(err)
	}
	versions, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte("l"), UpperBound: []byte("m")})
	if err != nil {
		t.Fatal(err)
	}
	if !versions.First() {
		t.Fatal("the feed has no versions")
	}
	err = errors.Join(db.Delete(versions.Key(), pebble.Sync), versions.Close(), db.Close())
	if err := errors.Join(err, os.Remove(filepath.Join(dir, "INVENTORY"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What was found is all that the report says, for people and for programs.
func TestACheckReportsWhatItHasFound(t *testing.T) {
	dir := deficientStore(t)
	const first = `has no version at LSN 1 of log 0`
	out, _, err := call(t, "check", dir)
	if !errors.Is(err, docstore.ErrCorrupt) || !strings.Contains(out, first+"\n") ||
		strings.Contains(out, "no violation\n") {
		t.Errorf("got %q, %v, want violations, among them %s", out, err, first)
	}
	var report checked
	out, _, err = call(t, "check", dir, "-o", "json")
	if jsonErr := json.Unmarshal([]byte(out), &report); jsonErr != nil || !errors.Is(err, docstore.ErrCorrupt) {
		t.Fatalf("got %q, %v, %v", out, err, jsonErr)
	}
	if report.Records == 0 || len(report.Violations) == 0 ||
		!strings.HasSuffix(report.Violations[0].Text, first) || report.Error != "" {
		t.Errorf("got %s, want violations that begin with %s", out, first)
	}
}

// A copy of a store with violations may be all that there will be.
func TestACopyWithViolationsIsKept(t *testing.T) {
	dir, copied := deficientStore(t), filepath.Join(t.TempDir(), "copy")
	out, said, err := call(t, "backup", dir, copied)
	if !errors.Is(err, docstore.ErrCorrupt) || !strings.HasPrefix(err.Error(), copied+": ") ||
		!strings.Contains(err.Error(), "; the copy is left in "+copied+":") || out != "" {
		t.Errorf("got %q, %v, want what is wrong with the copy", out, err)
	}
	if want := "has no version at LSN 1"; !strings.Contains(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	if got := command(t, "export", "docstore:"+copied+"#c"); strings.Count(got, "\n") == 0 {
		t.Error("the copy has no documents")
	}
}

// A check that cannot be done is a report, too, and its error tells how to go on. One that was called wrongly reports
// nothing.
func TestACheckThatCannotBeDoneSaysWhy(t *testing.T) {
	var report checked
	out, _, err := call(t, "check", "http://127.0.0.1:1", "-o", "json")
	if jsonErr := json.Unmarshal([]byte(out), &report); jsonErr != nil || err == nil ||
		string(report.Error) != place.Plain(err) || place.Hint(err) == "" {
		t.Errorf("got %q, %v, want a report with the error, which has a hint", out, err)
	}
	if out, _, err := call(t, "check", "cosmos:shop/orders", "-o", "json"); !errors.As(err, new(usage.Error)) ||
		out != "" {
		t.Errorf("got %q, %v, want an error of usage alone", out, err)
	}
}
