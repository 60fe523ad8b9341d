//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// closer is a lock that notes whether its file is there when the lock ends.
type closer struct {
	io.Closer
	path string
	err  error
}

func (c *closer) Close() error {
	_, c.err = os.Stat(c.path)
	return c.Closer.Close()
}

// A temporary lock removes its file before the lock ends. After the end the file may be the lock of somebody else.
func TestATemporaryLockHasNoFileWhenItEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := TakeTemporary(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TakeTemporary(path); !errors.Is(err, ErrHeld) {
		t.Errorf("a second lock: got %v, want %v", err, ErrHeld)
	}
	inner := closer{lock.(temporary).Closer, path, nil}
	if err := (temporary{&inner, path}).Close(); err != nil || !errors.Is(inner.err, fs.ErrNotExist) {
		t.Errorf("got %v, and at the end the file %v, want none", err, inner.err)
	}
	again, err := TakeTemporary(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// A lock on a file that is no longer at the path, or that is another one there, keeps nobody out.
func TestALockIsOfTheFileAtItsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for _, want := range []bool{true, false} {
		old, err := Take(path)
		if err != nil {
			t.Fatal(err)
		}
		if !want {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if got, err := isAt(path, old.(*os.File)); got != want || err != nil {
				t.Errorf("got %t, %v, want %t", got, err, want)
			}
			if f, err := os.OpenFile(path, os.O_CREATE, 0o600); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
