//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// writeDocuments writes documents into a named pipe until end is closed, and then one more, before which it gives their
// number. So an import of the pipe cannot be through before that.
func writeDocuments(t *testing.T, path string, end <-chan struct{}) (documents <-chan int) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // which waits for no reader
	if err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	t.Cleanup(func() {
		_ = pipe.Close() // has a writer end that nobody reads from
		writing.Wait()
	})
	all := make(chan int, 1)
	writing.Go(func() {
		defer pipe.Close()
		for i := 0; ; i++ {
			last := false
			select {
			case <-end:
				last = true
				all <- i + 1
			default:
			}
			if _, err := fmt.Fprintf(pipe, `{"id":"%d","key":"%d"}`+"\n", i, i%100); err != nil || last {
				return
			}
		}
	})
	return all
}

// TestTailAndImportOutliveTheirServer kills the server while one command writes to it and
// another follows, and starts it again: nothing is missing, and the follower prints
// nothing twice.
func TestTailAndImportOutliveTheirServer(t *testing.T) {
	s := openShop(t, shopTimes{patience: time.Minute})
	file := filepath.Join(s.dir, "orders.ndjson")
	crashed := make(chan struct{})
	documents := writeDocuments(t, file, crashed)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	_, tailEnded := begin(ctx, in, "tail", s.url, "--meta")
	errs, importEnded := begin(ctx, io.Discard, "import", file, s.url)

	lines := bufio.NewScanner(out)
	changes, ids := map[string]bool{}, map[string]bool{}
	for want := -1; len(ids) != want && lines.Scan(); {
		var c struct {
			LSN int64
			ID  string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		change := fmt.Sprint(c.LSN, " ", c.ID)
		if changes[change] {
			t.Errorf("change %s was printed twice", change)
		}
		changes[change], ids[c.ID] = true, true
		if len(changes) == 250 {
			s.crash()
			close(crashed)
		}
		select {
		case want = <-documents:
		default:
		}
	}
	if err := <-importEnded; err != nil {
		t.Errorf("import: %v", err)
	}
	cancel()
	if err := <-tailEnded; err != nil {
		t.Errorf("tail: %v", err)
	}
	// The server may have been away for less than a second, of which nothing is said.
	if got := errs.String(); strings.Count(got, "the account is away (") > 1 ||
		strings.Count(got, "the account is back after ") != strings.Count(got, "the account is away (") {
		t.Errorf("import said %q, want one line that it is away, and one that it is back", got)
	}
}

// A watch says once that the leases cannot be read, goes on, and says once that they can be read again.
func TestAWatchOutlivesItsServer(t *testing.T) {
	s := openShop(t, shopTimes{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	errs, ended := begin(ctx, in, "leases", "watch", strings.TrimSuffix(s.url, "orders")+"leases", "--every", "100ms")
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "at ") {
		t.Fatalf("the first line is %q, want the time", lines.Text())
	}
	rounds := make(chan bool, 1)
	go func() { // ends with the pipe
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "at ") {
				select {
				case rounds <- true:
				default:
				}
			}
		}
	}()
	if err := s.server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.server.Wait() // says that it was killed
	awaitText(t, errs, "cannot be read", 1)
	address, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.serve(address.Host)
	awaitText(t, errs, "can be read again", 1)
	for range 2 {
		<-rounds // one may be from before
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	_ = in.Close() // ends the reader
	if got := errs.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "trying again every 100ms") {
		t.Errorf("said %q, want one line that the leases cannot be read, and one that they can", got)
	}
}

// A store in a directory is open only while a round reads it, so others may open it between two rounds.
func TestAWatchOutlivesAnotherProcessInItsStore(t *testing.T) {
	dir := storeOf(t, `{"id":"1","pk":"a"}`)
	if _, err := process(t.Context(), dir, "orders", "mailer"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	errs, ended := begin(ctx, in, "leases", "watch", "--db", dir, "--every", "100ms")
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("there is no first round: %s", errs)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the pipe
	db, err := docstore.Open(dir, docstore.Options{})
	for errors.Is(err, docstore.ErrInUse) { // while a round reads it
		db, err = docstore.Open(dir, docstore.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	awaitText(t, errs, "cannot be read", 1)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	awaitText(t, errs, "can be read again", 1)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	_ = in.Close() // ends the reader
}

// TestAnImportIntoAnAccountGoesOnWhereItStopped ends one in its middle.
func TestAnImportIntoAnAccountGoesOnWhereItStopped(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	t.Setenv(place.ConnectionVariable, "AccountEndpoint="+server.URL+"/;AccountKey="+server.Key+";")
	file := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(file, generated(30000), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"import", file, "cosmos:shop/orders", "--pk", "/outcode"}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	_, ended := begin(ctx, io.Discard, args...)
	client, err := cosmos.Open(t.Context(), server.URL, cosmos.Key(server.Key), cosmos.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for begun := false; !begun && t.Context().Err() == nil; {
		orders, err := client.Container(t.Context(), "shop", "orders")
		if errors.Is(err, feed.ErrNotFound) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		page, err := orders.Read(t.Context(), feed.FullRange(), feed.Position{Start: feed.FromBeginning()},
			feed.ReadOptions{MaxItems: 6000})
		if err != nil {
			t.Fatal(err)
		}
		begun = len(page.Changes) > 5000 // so many that the first lines, too, are acknowledged
	}
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	err = <-ended
	if !errors.Is(err, interrupted) || !strings.Contains(err.Error(), "and the same command goes on from there") {
		t.Fatalf("got %v, want what to do next", err)
	}
	errs, ended := begin(t.Context(), io.Discard, args...)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errs.String(), "going on after line ") {
		t.Errorf("said %q, want that it goes on", errs)
	}
	if n := strings.Count(command(t, "export", "cosmos:shop/orders"), "\n"); n != 30000 {
		t.Errorf("got %d documents, want 30000", n)
	}
	if left, _ := filepath.Glob(file + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
