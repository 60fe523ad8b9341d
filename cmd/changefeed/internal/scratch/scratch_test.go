package scratch

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestASecondSignalIsToldFromARepeatedOne(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  os.Signal
		second os.Signal
		after  time.Duration
		want   bool
	}{
		{"Ctrl-C twice", os.Interrupt, os.Interrupt, 0, true},
		{"Ctrl-C after SIGTERM", syscall.SIGTERM, os.Interrupt, 0, true},
		{"timeout(1)", syscall.SIGTERM, syscall.SIGTERM, time.Millisecond, false},
		{"SIGHUP with its echo", syscall.SIGHUP, syscall.SIGHUP, time.Millisecond, false},
		{"SIGHUP again", syscall.SIGHUP, syscall.SIGHUP, SameSignal + time.Millisecond, true},
		{"SIGTERM again", syscall.SIGTERM, syscall.SIGTERM, SameSignal + time.Millisecond, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals, over := make(chan os.Signal, 2), make(chan struct{})
			got := make(chan bool, 1)
			go func() { got <- AwaitSecond(signals, over) }()
			signals <- tt.first
			time.Sleep(tt.after)
			signals <- tt.second
			synctest.Wait()
			close(over)
			if got := <-got; got != tt.want {
				t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
			}
		})
	}
}

// A file that is being written does not bring the directory back.
func TestADirectoryInUseIsRemoved(t *testing.T) {
	parent := t.TempDir()
	d, err := Make(parent, "demo-", func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	file, err := os.Create(filepath.Join(d.Path, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := d.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Create(filepath.Join(d.Path, "table")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a new file: got %v, want that there is no directory", err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// Whichever signal comes first, a second Ctrl-C ends the process, and leaves no directory, wherever it is by then.
func TestASecondSignalRemovesTheDirectory(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		safe := make(chan os.Signal, 1) // the test does not end by the signals
		signal.Notify(safe, first, os.Interrupt)
		before, exited := filepath.Join(t.TempDir(), "partial"), make(chan struct{})
		d := Guard(before, func() { close(exited) })
		after := filepath.Join(t.TempDir(), "whole")
		if err := os.Mkdir(after, 0o700); err != nil {
			t.Fatal(err)
		}
		d.MoveTo(after)
		for _, s := range []os.Signal{first, os.Interrupt} {
			if err := self.Signal(s); err != nil {
				t.Skipf("a process cannot signal itself on this system: %v", err)
			}
			<-safe // so that the signals come in this order
		}
		select {
		case <-exited:
		case <-time.After(10 * time.Second):
			t.Errorf("%v and Ctrl-C do not end the process", first)
		}
		if _, err := os.Stat(after); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after %v and Ctrl-C: got %v, want that the directory is gone", first, err)
		}
		d.Release()
		signal.Stop(safe)
	}
}

func TestARemovedDirectoryIsGone(t *testing.T) {
	d, err := Make(t.TempDir(), "bench-", func() {})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that the directory is gone", err)
	}
	if _, err := Make(filepath.Join(t.TempDir(), "none"), "bench-", func() {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a directory that does not exist: got %v", err)
	}
}
