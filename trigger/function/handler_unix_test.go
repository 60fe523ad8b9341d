//go:build unix

package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/function"
)

// The test binary itself is the custom handler, if the environment says so.
func TestMain(m *testing.M) {
	kind := os.Getenv("FUNCTION_TEST")
	if kind == "" {
		os.Exit(m.Run())
	}
	fmt.Println("begins as", kind)
	switch kind {
	case "exits":
		fmt.Fprintln(os.Stderr, "no such mailbox")
		os.Exit(7)
	case "mute":
		select {}
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	steered := &steered{l}
	if kind == "gentle" {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		go func() {
			<-signals
			fmt.Println("SIGTERM has come")
			os.Exit(0)
		}()
	}
	if kind == "deaf" {
		signal.Ignore(syscall.SIGTERM)
	}
	_ = http.Serve(l, steered)
	select {} // the listener is closed, and the process stays
}

// steered is a function that does what its documents say.
type steered struct {
	listener net.Listener
}

// order is a document of a test.
type order struct {
	Do     string          `json:"do"`
	Code   int             `json:"code"`
	Text   string          `json:"text"`
	Answer json.RawMessage `json:"answer"`
	ID     string          `json:"id"`
	City   string          `json:"city"`
}

// ServeHTTP implements http.Handler.
func (s *steered) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodGet {
		http.NotFound(w, req) // any answer says that the program is ready
		return
	}
	var invocation struct {
		Data struct {
			Docs string `json:"docs"`
		}
	}
	var text string
	var orders []order
	body, err := io.ReadAll(req.Body) // to the end: only then does net/http see that the connection is closed
	err = errors.Join(err, json.Unmarshal(body, &invocation), json.Unmarshal([]byte(invocation.Data.Docs), &text),
		json.Unmarshal([]byte(text), &orders))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := json.RawMessage(`{}`)
	var copies []string
	for _, o := range orders {
		switch o.Do {
		case "exit":
			if o.Text != "" {
				fmt.Fprintln(os.Stderr, o.Text)
			}
			os.Exit(o.Code)
		case "say":
			fmt.Println(o.Text)
		case "complain":
			fmt.Fprintln(os.Stderr, o.Text)
		case "wait":
			<-req.Context().Done()
			fmt.Println("the request was canceled", req.Header.Get("Changefeed-Lease"))
		case "hang":
			select {}
		case "fail":
			http.Error(w, o.Text, o.Code)
			return
		case "panic":
			panic(http.ErrAbortHandler)
		case "deafen":
			s.listener.Close()
			w.Header().Set("Connection", "close")
		case "answer":
			answer = o.Answer
		case "copy":
			copies = append(copies, fmt.Sprintf(`{"id":%q,"city":%q}`, o.ID, o.City))
		case "leave": // a child process that has the pipe
			pipe, err := os.OpenFile(o.Text, os.O_WRONLY, 0)
			if err == nil {
				child := exec.Command("sleep", "60")
				child.Stdout = pipe
				err = errors.Join(child.Start(), pipe.Close())
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		case "once": // waits the first time only
			if os.Mkdir(o.Text, 0o700) != nil {
				break
			}
			fmt.Println("waiting")
			<-req.Context().Done()
			fmt.Println("the request was canceled", req.Header.Get("Changefeed-Lease"))
		}
	}
	if len(copies) > 0 {
		answer = json.RawMessage(`{"Outputs":{"copies":[` + strings.Join(copies, ",") + `]}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// lines is the text of a log.
type lines struct {
	mu    sync.Mutex
	text  strings.Builder
	grown chan struct{}
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	close(l.grown)
	l.grown = make(chan struct{})
	return len(p), nil
}

// String returns the text.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until the log has a text.
func (l *lines) await(t *testing.T, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		text, grown := l.text.String(), l.grown
		l.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-grown:
		case <-late:
			t.Fatalf("the log has no %q:\n%s", want, text)
		}
	}
}

// seen is the function of the tests.
func seen() *function.Function {
	return &function.Function{Name: "Seen", Trigger: function.Trigger{Name: "docs"}}
}

// appOf returns an app whose program is the test binary, as a kind of program.
func appOf(t *testing.T, kind string) *function.App {
	t.Helper()
	t.Setenv("FUNCTION_TEST", kind)
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	return &function.App{
		Dir: t.TempDir(), Program: function.Program{Executable: program, Start: 30 * time.Second},
		Functions: []function.Function{*seen()},
	}
}

// start starts the host of an app. The log is in memory.
func start(t *testing.T, app *function.App, o function.HostOptions) (*function.Host, *lines) {
	t.Helper()
	log := &lines{grown: make(chan struct{})}
	o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h, err := function.NewHost(app, o)
	if err != nil {
		t.Fatal(err)
	}
	h.Start(t.Context())
	t.Cleanup(h.Close)
	return h, log
}

// batch is a batch of a lease with documents.
func batch(lease string, documents ...string) *feed.Batch {
	b := &feed.Batch{LeaseToken: lease, Range: feed.FullRange(), Instance: "one", Attempt: 1}
	for i, text := range documents {
		b.Changes = append(b.Changes, feed.Change{
			ID: fmt.Sprint(i), LSN: int64(i + 1), PartitionKey: feed.Key("k"), Body: []byte(text),
		})
	}
	return b
}

func isOutage(err error) bool {
	f, ok := errors.AsType[*feed.Failure](err)
	return ok && f.Outage
}

// The batch that a program has when it ends is at fault, with the exit code and the last line of standard error, also
// if the exit code is 0. The next batch is handled by a new program.
func TestABatchIsBlamedForTheEndOfItsProgram(t *testing.T) {
	h, log := start(t, appOf(t, "good"), function.HostOptions{})
	f := h.Handler(seen(), nil)
	for _, tt := range []struct{ document, want string }{
		{`{"do":"exit","code":3,"text":"out of memory"}`, "exit status 3: out of memory"},
		{`{"do":"exit","code":0}`, "exit status 0"},
	} {
		err := f.Handle(t.Context(), batch("-FF", tt.document))
		if err == nil || !strings.HasSuffix(err.Error(), "has ended: "+tt.want) || isOutage(err) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
		if err := f.Handle(t.Context(), batch("-FF", `{}`)); err != nil {
			t.Error(err)
		}
		// An invocation without an answer after that changes nothing.
		lost, lose := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		said := "before " + tt.want
		go func() {
			ended <- f.Handle(lost, batch("-FF", fmt.Sprintf(`{"do":"say","text":%q}`, said), `{"do":"wait"}`))
		}()
		log.await(t, said)
		lose(feed.ErrLeaseLost)
		if err := <-ended; !errors.Is(err, feed.ErrLeaseLost) {
			t.Errorf("got %v", err)
		}
	}
	// Each life that was cut short has the shortest pause after it: the second has done an invocation.
	if n := strings.Count(log.String(), "in=100ms"); n != 2 {
		t.Errorf("%d pauses of 100 ms, want 2:\n%s", n, log)
	}
	if n := strings.Count(log.String(), "the program runs"); n != 3 {
		t.Errorf("the program was started %d times, want 3", n)
	}
}

// What the program prints is logged, by the rules of Azure.
func TestWhatAProgramPrintsIsLogged(t *testing.T) {
	h, log := start(t, appOf(t, "good"), function.HostOptions{})
	err := h.Handler(seen(), nil).Handle(t.Context(), batch("-FF",
		`{"do":"say","text":"two documents"}`, `{"do":"complain","text":"a WARNing of it"}`,
		`{"do":"complain","text":"it is broken"}`, `{"do":"answer","answer":{"logs":["from the answer",7]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`level=INFO msg="begins as good"`, `level=INFO msg="two documents"`, `level=WARN msg="a WARNing of it"`,
		`level=ERROR msg="it is broken"`, `level=INFO msg="from the answer" origin=function function=Seen`,
		`level=INFO msg=7`,
	} {
		log.await(t, want)
	}
}

// An invocation ends with its lease: the request is canceled, and other leases' invocations go on.
func TestALostLeaseCancelsItsInvocationOnly(t *testing.T) {
	h, log := start(t, appOf(t, "good"), function.HostOptions{})
	f := h.Handler(seen(), nil)
	lost, lose := context.WithCancelCause(t.Context())
	stopped, stop := context.WithCancelCause(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- f.Handle(lost, batch("-7F", `{"do":"say","text":"first"}`, `{"do":"wait"}`)) }()
	go func() { second <- f.Handle(stopped, batch("7F-FF", `{"do":"say","text":"second"}`, `{"do":"wait"}`)) }()
	log.await(t, "first")
	log.await(t, "second")
	if got := fmt.Sprint(f.Running()); got != "[-7F 7F-FF]" {
		t.Errorf("leases in hand: %s", got)
	}
	lose(feed.ErrLeaseLost)
	if err := <-first; !errors.Is(err, feed.ErrLeaseLost) {
		t.Errorf("the batch of the lost lease ends with %v", err)
	}
	log.await(t, "the request was canceled -7F")
	if got := fmt.Sprint(f.Running(), f.Unfinished()); got != "[7F-FF] []" {
		t.Errorf("leases in hand and unfinished: %s", got)
	}
	stop(feed.ErrStopped)
	if err := <-second; !errors.Is(err, feed.ErrStopped) {
		t.Errorf("the batch of the stop ends with %v", err)
	}
	if got := fmt.Sprint(f.Running(), f.Unfinished()); got != "[] [7F-FF]" {
		t.Errorf("leases in hand and unfinished: %s", got)
	}
	if strings.Count(log.String(), "the program runs") != 1 {
		t.Errorf("the program was started again:\n%s", log)
	}
}
