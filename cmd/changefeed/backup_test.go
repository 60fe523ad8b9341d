package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
)

// until is a context that ends as soon as there is a directory.
type until struct {
	context.Context
	dir string
}

// Err implements [context.Context].
func (c until) Err() error {
	if _, err := os.Stat(c.dir); err != nil {
		return nil
	}
	return context.Canceled
}

// Done implements [context.Context]. Whoever asks for it after the end has a channel that is closed.
func (c until) Done() <-chan struct{} {
	ended := make(chan struct{})
	if c.Err() != nil {
		close(ended)
	}
	return ended
}

// A Ctrl-C while the copy is being checked is no violation, and the copy can be made again.
func TestABackupThatIsInterruptedInItsCheckLeavesNothing(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	in := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, generated(100), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	var said bytes.Buffer
	backup := backupCommand()
	backup.SilenceErrors, backup.SilenceUsage = true, true
	backup.SetArgs([]string{dir, to})
	backup.SetOut(&said)
	backup.SetErr(&said)
	err := backup.ExecuteContext(until{t.Context(), to})
	if err == nil || err.Error() != "interrupted before the copy was checked, and the same command begins anew; removed "+to || said.Len() > 0 {
		t.Errorf("got %v, said %q", err, said.String())
	}
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy: %v, want that it is gone", err)
	}
	if got := command(t, "backup", dir, to); !strings.HasSuffix(got, "checked\n") {
		t.Errorf("a second backup says %q", got)
	}
}

// A person who presses Ctrl-C twice does not wait for the end of the check. The unchecked copy is gone all the same, or
// the same command would be refused.
func TestABackupThatIsInterruptedTwiceInItsCheckLeavesNothing(t *testing.T) {
	dir, to := storeOf(t, `{"id":"1","pk":"a"}`), filepath.Join(t.TempDir(), "copy")
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	safe := make(chan os.Signal, 1) // the test does not end by the signals
	signal.Notify(safe, os.Interrupt)
	defer signal.Stop(safe)
	exited, left := make(chan struct{}), errors.New("nobody has looked")
	o := backupOptions{report: &report.Report{Out: io.Discard, Err: io.Discard}, exit: func() {
		_, left = os.Lstat(to)
		close(exited)
	}}
	cmd := backupCommand()
	cmd.SetContext(&during{until: until{t.Context(), to}, f: func() {
		for range 2 {
			if err := self.Signal(os.Interrupt); err != nil {
				left = fs.ErrNotExist // a process cannot signal itself on this system
				return
			}
			<-safe
		}
		select {
		case <-exited:
		case <-time.After(10 * time.Second):
		}
	}})
	if err := o.backupStore(cmd, dir, to); err == nil {
		t.Error("the backup has succeeded")
	}
	if !errors.Is(left, fs.ErrNotExist) {
		t.Errorf("at the end of the process: %v, want that the copy is gone", left)
	}
}

// during is a context that calls f once when it ends, before anybody sees the end.
type during struct {
	until
	f     func()
	once  sync.Once
	ended atomic.Bool
}

// Err implements [context.Context].
func (d *during) Err() error {
	if d.until.Err() != nil {
		d.once.Do(func() {
			d.f()
			d.ended.Store(true)
		})
	}
	if d.ended.Load() {
		return context.Canceled
	}
	return nil
}

// A check that is interrupted says nothing about the store but what it has found.
func TestACheckThatIsInterruptedSaysSo(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(in, generated(100), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	var said bytes.Buffer
	check := checkCommand()
	check.SilenceErrors, check.SilenceUsage = true, true
	check.SetArgs([]string{dir})
	check.SetOut(&said)
	check.SetErr(&said)
	err := check.ExecuteContext(until{t.Context(), dir})
	if err == nil || !strings.HasPrefix(err.Error(), dir+": interrupted after ") ||
		!strings.HasSuffix(err.Error(), " records, with 0 violations until then; the same command begins anew") {
		t.Errorf("got %v, want that it was interrupted", err)
	}
}

func TestABackupTellsHowLargeItIs(t *testing.T) {
	dir, in, to := t.TempDir(), filepath.Join(t.TempDir(), "in.ndjson"), filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(in, generated(100), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", in, "docstore:"+dir+"#orders", "--pk", "/outcode")
	var got backedUp
	if err := json.Unmarshal([]byte(command(t, "backup", dir, to, "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	want := backedUp{Directory: to, Checked: true}
	err := filepath.Walk(to, func(path string, file fs.FileInfo, err error) error {
		if path != to && err == nil {
			want.Files, want.Bytes = want.Files+1, want.Bytes+file.Size()
		}
		return err
	})
	if err != nil || got != want || got.Files < 2 {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
