package outbox_test

import (
	"strings"
	"testing"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/outbox"
)

func TestStrangerLargeDocumentReopened(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "contacts", Paths: []string{"/partitionKey"}})
	if err != nil {
		t.Fatal(err)
	}
	d := docOf("c1", &contact{Name: strings.Repeat("x", 2<<20-150)})
	u := outbox.NewUnit(c, outbox.Options{})
	u.Create(d)
	if err := u.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("check: %v", db.Check())
	read, err := outbox.Load[*contact](t.Context(), c, "c1", "contact", "c1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		read.Data.Name = read.Data.Name[1:]
		u = outbox.NewUnit(c, outbox.Options{})
		u.Replace(read)
		if err := u.Commit(t.Context()); err != nil {
			t.Errorf("replace %d: %.200v", i, err)
		}
	}
	_, err = c.Commit(t.Context(), changefeed.Key("c1"), []changefeed.Write{{Op: changefeed.WritePatch, ID: "c1", Patch: []changefeed.PatchOp{{Op: "set", Path: "/ttl", Value: []byte("60")}}}})
	if err != nil {
		t.Errorf("patch of its ttl: %.200v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	db, err = docstore.Open(dir, docstore.Options{NoSync: true})
	if err != nil {
		t.Fatalf("reopen: %v", err)
	}
	defer db.Close()
	t.Logf("check after: %v", db.Check())
	var b strings.Builder
	if err := db.BackupTo(t.Context(), &b); err != nil {
		t.Errorf("backup: %v", err)
	} else if err := docstore.ReceiveBackup(t.Context(), strings.NewReader(b.String()), dir+"2"); err != nil {
		t.Errorf("receive backup: %v", err)
	}
}
