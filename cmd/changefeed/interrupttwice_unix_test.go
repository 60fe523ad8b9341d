//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// A busy is a command at a point where the first interrupt alone would not end it, or not soon.
type busy struct {
	args  []string
	input io.Reader
	ready func() bool // the command has come to the point
	left  []string    // files that the command must not leave
}

// Whoever presses Ctrl-C again and again gets the terminal back, whatever the command waits for: a reader, a handler, a
// client, or a server that has stopped answering.
func TestASecondInterruptEndsEachLongCommand(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T) busy{
		"export": busyExport, "run": busyRun, "serve": busyServe, "import": busyImport, "backup": busyBackup,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			interruptAgain(t, prepare(t))
		})
	}
}

// interruptAgain starts a command, and interrupts the command until it ends.
func interruptAgain(t *testing.T, b busy) {
	t.Helper()
	const patience, pause = 20 * time.Second, 20 * time.Millisecond
	cmd := exec.Command("changefeed", b.args...)
	cmd.Stdin = b.input
	out, unread, err := os.Pipe() // whose reader reads nothing
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = unread, &said, patience
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	unread.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	begun, sent := time.Now(), 0
	for ticks := time.NewTicker(pause); ; {
		select {
		case <-ended:
			code := cmd.ProcessState.ExitCode()
			status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			isKilled := ok && status.Signaled() && status.Signal() == syscall.SIGINT // which shells show as 130
			if sent == 0 || code != exitInterrupted && !isKilled {
				t.Errorf("after %d interrupts: exit code %d, want %d: %s", sent, code, exitInterrupted, &said)
			}
			for _, path := range b.left {
				if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", path, err)
				}
			}
			return
		case <-ticks.C:
			if sent > 0 || b.ready() {
				_ = cmd.Process.Signal(syscall.SIGINT) // fails if the command has ended, which the exit code shows
				sent++
			}
		}
		if time.Since(begun) > patience {
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("after %d interrupts and %v the command runs: %s", sent, patience, &said)
		}
	}
}

// largeStore makes a store whose documents are more than a pipe holds.
func largeStore(t *testing.T) string {
	t.Helper()
	return storeOf(t, numbered(3000))
}

// numbered returns documents of 1000 bytes each.
func numbered(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `{"id":"%d","pk":"%d","text":"%s"}`+"\n", i, i, strings.Repeat("x", 1000))
	}
	return text.String()
}

// afterSoLong is ready after a time, for a point that nobody can see from outside.
func afterSoLong(wait time.Duration) func() bool {
	begun := time.Now()
	return func() bool { return time.Since(begun) > wait }
}

// busyExport waits for the reader of its output.
func busyExport(t *testing.T) busy {
	return busy{args: []string{"export", "docstore:" + largeStore(t) + "#orders"}, ready: afterSoLong(time.Second)}
}

// busyRun waits for a handler that does not end.
func busyRun(t *testing.T) busy {
	dir := storeOf(t, `{"id":"1","pk":"a"}`)
	path := filepath.Join(t.TempDir(), "handling")
	return busy{
		args: []string{
			"run", "--source", "docstore:" + dir + "#orders", "--name", "one", "--create-leases", "--from", "beginning",
			"--", "sh", "-c", `trap "" TERM INT; touch ` + path + `; exec sleep 15`,
		},
		ready: func() bool { _, err := os.Lstat(path); return err == nil },
	}
}

// busyServe waits for a client that does not send the rest of its request.
func busyServe(t *testing.T) busy {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	free.Close()
	head := headOfCreation(t)
	return busy{args: []string{"serve", "--http", "--listen", at}, ready: func() bool {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return false
		}
		t.Cleanup(func() { c.Close() })
		if _, err = io.WriteString(c, head); err != nil {
			return false
		}
		// The server asks for the body when it waits for the body. A request that it has not begun to read would not
		// keep it from ending.
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.HasPrefix(answer, "HTTP/1.1 100 ") {
			t.Errorf("the server has not asked for the body: %q, %v", answer, err)
		}
		return true
	}}
}

// headOfCreation is the head of a request that creates a database and whose body is sent if the server asks for it.
func headOfCreation(t *testing.T) string {
	t.Helper()
	key, err := rest.Key(cosmosrest.EmulatorKey)
	if err != nil {
		t.Fatal(err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	signature, err := key.Sign(t.Context(), http.MethodPost, rest.Resource{Kind: "dbs"}, date)
	if err != nil {
		t.Fatal(err)
	}
	return "POST /dbs HTTP/1.1\r\nHost: localhost\r\nx-ms-date: " + date + "\r\nAuthorization: " + signature +
		"\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
}

// silentServer is a server that takes requests and answers none. asked is closed by the first of them.
func silentServer(t *testing.T) (url string, asked <-chan struct{}) {
	t.Helper()
	first, end := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case first <- struct{}{}:
		default:
		}
		<-end
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	return s.URL, first
}

// isAsked returns whether a silent server was asked.
func isAsked(asked <-chan struct{}) func() bool { return func() bool { return len(asked) > 0 } }

// busyImport waits for a server.
func busyImport(t *testing.T) busy {
	url, asked := silentServer(t)
	path := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(path, []byte(numbered(10)), 0o644); err != nil {
		t.Fatal(err)
	}
	return busy{args: []string{"import", path, url + "/shop/orders"}, ready: isAsked(asked)}
}

// busyBackup waits for a server, and leaves no part of a copy.
func busyBackup(t *testing.T) busy {
	url, asked := silentServer(t)
	to := filepath.Join(t.TempDir(), "copy")
	return busy{args: []string{"backup", url, to}, ready: isAsked(asked), left: []string{to, to + ".partial"}}
}
