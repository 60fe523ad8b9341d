package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// TestACheckOfADamagedStoreEndsWithOne damages a block of documents.
func TestACheckOfADamagedStoreEndsWithOne(t *testing.T) {
	dir := t.TempDir()
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
				if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"p","pad":%q}`, j, strings.Repeat(fmt.Sprint(j), 100))); err != nil {
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
	if code := execute(t.Context(), []string{"check", dir}); code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if code := execute(t.Context(), []string{"backup", dir, copied}); code != exitFailed {
		t.Errorf("backup: exit code %d, want %d", code, exitFailed)
	}
}
