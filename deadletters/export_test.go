package deadletters

import (
	"bytes"
	"os"
	"testing"
)

// HoldLess has letters read again from the store when there are more bytes of them than n.
func HoldLess(t *testing.T, n int) {
	was := maxHeld
	maxHeld = n
	t.Cleanup(func() { maxHeld = was })
}

// OnDisk are the files, by their paths, as they are after a power loss: with what was synced, and nothing else.
func OnDisk(t *testing.T) map[string][]byte {
	was, kept := syncFile, map[string][]byte{}
	syncFile = func(f *os.File) (err error) {
		kept[f.Name()], err = os.ReadFile(f.Name())
		return err
	}
	t.Cleanup(func() { syncFile = was })
	return kept
}

// FillDisk has writes fail after they have left something in the file, until restore.
func FillDisk(t *testing.T, b *FileBox) (restore func()) {
	t.Helper()
	if _, err := b.file.WriteAt(bytes.Repeat([]byte("torn"), 1000), b.size); err != nil {
		t.Fatal(err)
	}
	good := b.file
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b.file = full
	return func() {
		b.file = good
		if err := full.Close(); err != nil {
			t.Error(err)
		}
	}
}
