package docstore_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// TestABackupHasEveryWriteThatWasAcknowledgedBefore makes backups in both ways below
// writers, splits and merges, and opens and checks them.
func TestABackupHasEveryWriteThatWasAcknowledgedBefore(t *testing.T) {
	db, err := docstore.Open(t.TempDir(), docstore.Options{}.WithBuffer(512<<10))
	if err != nil {
		t.Fatal(err)
	}
	c := container(t, db, docstore.ContainerSpec{})
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var work sync.WaitGroup
	acked := map[string]int{}
	begun := make(chan struct{}, 3)
	for w := range 3 {
		work.Go(func() {
			for v := 1; ctx.Err() == nil; v++ {
				id := fmt.Sprintf("w%d-%d", w, v%50)
				if _, err := c.Upsert(t.Context(), fmt.Appendf(nil, `{"id":%q,"pk":"p","v":%d,"pad":%q}`, id, v,
					strings.Repeat("x", 2000))); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[id] = v
				mu.Unlock()
				if v == 100 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range 3 {
		<-begun
	}
	top := t.TempDir()
	for name, backup := range map[string]func(dir string) error{
		"directory": func(dir string) error { return db.Backup(t.Context(), dir) },
		"stream": func(dir string) error {
			r, w := io.Pipe()
			var sending sync.WaitGroup
			sending.Go(func() { _ = w.CloseWithError(db.BackupTo(t.Context(), w)) })
			defer sending.Wait()
			err := docstore.ReceiveBackup(t.Context(), r, dir)
			return errors.Join(err, r.Close())
		},
	} {
		if _, err := c.Split(t.Context(), must(c.Partitions(t.Context()))[0].ID); err != nil {
			t.Error(err)
		}
		mu.Lock()
		before := maps.Clone(acked)
		mu.Unlock()
		dir := filepath.Join(top, "new", name)
		if err := backup(dir); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		verifyCopy(t, dir, before)
	}
	stop()
	work.Wait()
	if left := files(t, db.Dir(), "*"); strings.Contains(strings.Join(left, " "), "backup-") {
		t.Errorf("the store has %v", left)
	}
	if err := errors.Join(db.Check(), db.Close()); err != nil {
		t.Error(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// verifyCopy opens a copy and looks for versions at least as new.
func verifyCopy(t *testing.T, dir string, acked map[string]int) {
	t.Helper()
	db, err := docstore.Open(dir, docstore.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	verifyVersions(t, db, acked)
}

func TestABackupThatFailsLeavesNothing(t *testing.T) {
	db := open(t, docstore.Options{InMemory: true})
	c := container(t, db, docstore.ContainerSpec{})
	for i := range 100 {
		upsert(t, c, fmt.Sprint(i), "p", i)
	}
	var stream bytes.Buffer
	if err := db.BackupTo(t.Context(), &stream); err != nil {
		t.Fatal(err)
	}
	whole := stream.Bytes()
	bent := bytes.Clone(whole)
	bent[bytes.Index(bent, []byte(`"v":50`))+4] = '7'
	ended, end := context.WithCancel(t.Context())
	end()
	top := t.TempDir()
	dir := filepath.Join(top, "copy")
	for name, receive := range map[string]func() error{
		"empty": func() error { return docstore.ReceiveBackup(t.Context(), bytes.NewReader(nil), dir) },
		"cut": func() error {
			return docstore.ReceiveBackup(t.Context(), bytes.NewReader(whole[:len(whole)/2]), dir)
		},
		"no end": func() error {
			return docstore.ReceiveBackup(t.Context(), bytes.NewReader(whole[:len(whole)-2048]), dir)
		},
		"bent": func() error { return docstore.ReceiveBackup(t.Context(), bytes.NewReader(bent), dir) },
		"no tar": func() error {
			return docstore.ReceiveBackup(t.Context(), strings.NewReader(strings.Repeat("no", 5000)), dir)
		},
		"more": func() error {
			return docstore.ReceiveBackup(t.Context(),
				bytes.NewReader(repack(t, whole, func(string, []byte) {}, "more")), dir)
		},
		"damaged": func() error { // the sum is that of the damaged files, as of a backup of a damaged store
			return docstore.ReceiveBackup(t.Context(), bytes.NewReader(repack(t, whole, func(_ string, content []byte) {
				if at := bytes.Index(content, []byte(`"v":50`)); at >= 0 {
					content[at+4] = '7'
				}
			}, "")), dir)
		},
		"canceled": func() error { return docstore.ReceiveBackup(ended, bytes.NewReader(whole), dir) },
		"backup":   func() error { return db.Backup(ended, dir) },
		"no name":  func() error { return db.Backup(t.Context(), "") },
		"exists":   func() error { return db.Backup(t.Context(), top) },
	} {
		err := receive()
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if name == "exists" && !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "bent" && (!errors.Is(err, docstore.ErrCorrupt) || !strings.Contains(err.Error(), "stream has")) {
			t.Errorf("%s: %v: want the stream to be refused, before a store of it is opened", name, err)
		}
		if name == "damaged" && (!errors.Is(err, docstore.ErrCorrupt) || strings.Contains(err.Error(), "stream has")) {
			t.Errorf("%s: %v: want the store to be refused that the stream holds", name, err)
		}
		if left, err := os.ReadDir(top); err != nil || len(left) > 0 {
			t.Errorf("%s: %v are left, %v", name, left, err)
		}
	}
	if err := docstore.ReceiveBackup(t.Context(), bytes.NewReader(whole), dir); err != nil {
		t.Error(err)
	}
}

// repack makes a stream anew, with files that edit may change, their sum, and a file after the end if more names one.
func repack(t *testing.T, stream []byte, edit func(name string, content []byte), more string) []byte {
	t.Helper()
	var made bytes.Buffer
	in, out := tar.NewReader(bytes.NewReader(stream)), tar.NewWriter(&made)
	add := func(name string, content []byte) {
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	sum, n := crc32.New(crc32.MakeTable(crc32.Castagnoli)), 0
	for {
		h, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "backup.end" {
			break
		}
		edit(h.Name, content)
		add(h.Name, content)
		_, _ = io.WriteString(sum, h.Name)
		_, _ = sum.Write(content)
		n++
	}
	add("backup.end", fmt.Appendf(nil, `{"Files":%d,"CRC":%d}`, n, sum.Sum32()))
	if more != "" {
		add(more, []byte("more"))
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}
