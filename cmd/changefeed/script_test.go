package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/load"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/scratch"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestMain(m *testing.M) {
	// Tests in parallel wait for processes most of the time, so there may be more than processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	testscript.Main(strangers{m}, map[string]func(){
		"changefeed": main, "record": recordBatch, "answer": answerInvocations, "suitehandler": runSuiteHandler,
		"terminations": func() { fmt.Println(scratch.Terminations()) },
	})
}

// strangers runs tests that see neither the contexts nor the accounts of the user who runs them. The commands of
// scripts have an environment of their own.
type strangers struct{ tests testscript.TestingM }

// Run implements [testscript.TestingM].
func (s strangers) Run() int {
	dir, err := os.MkdirTemp("", "changefeed")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{
		contexts.ContextVariable, place.EndpointVariable, place.KeyVariable, place.ConnectionVariable,
		place.ServerKeyVariable,
	} {
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
	if err := os.Setenv(contexts.FileVariable, filepath.Join(dir, "config.json")); err != nil {
		panic(err)
	}
	return s.tests.Run()
}

// TestScripts runs the sessions in testdata. Beside the binary they have:
//
//	generate FILE N             write N documents, a line each
//	process DIR CONTAINER UNIT  run a processor from the beginning until it has caught
//	                            up, and print what it handled
//	hold DIR                    have the store open while the rest of the script runs
//	park DIR#CONTAINER UNIT     park letters, in a container or in a FILE
//	keep FILE UNIT              have a file of letters open while the rest of the script runs
//	serving                     start a server with nothing in it; $URL and $KEY are its own
//	usage COMMAND...            run a command that is called wrongly: exit code 2
//	failing COMMAND...          run a command that fails: exit code 1
//	missing COMMAND...          run a command that names what does not exist: exit code 3
//	refused COMMAND...          run a command to which nobody answers, or that may not do it: exit code 4
//	finding COMMAND...          run a command that finds something: exit code 5
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv(contexts.FileVariable, filepath.Join(e.WorkDir, "config.json"))
			// A script must find a planted defect, too; see tools/mutants.
			e.Setenv("PLANTED_MUTANT", os.Getenv("PLANTED_MUTANT"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"generate": func(ts *testscript.TestScript, _ bool, args []string) {
				n, err := strconv.Atoi(args[1])
				ts.Check(err)
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), generated(n), 0o644))
			},
			"usage":   exits(exitUsage),
			"failing": exits(exitFailed),
			"missing": exits(exitMissing),
			"refused": exits(exitRefused),
			"finding": exits(exitFound),
			"process": func(ts *testscript.TestScript, _ bool, args []string) {
				got, err := process(t.Context(), ts.MkAbs(args[0]), args[1], args[2])
				ts.Check(err)
				fmt.Fprintf(ts.Stdout(), "handled %d changes of %d documents\n", got.changes, len(got.versions))
			},
			"park": func(ts *testscript.TestScript, _ bool, args []string) {
				path, container, _ := strings.Cut(args[0], "#")
				ts.Check(park(t.Context(), ts.MkAbs(path), container, args[1:]...))
			},
			"keep": func(ts *testscript.TestScript, _ bool, args []string) {
				b, err := deadletters.File(ts.MkAbs(args[0]), args[1])
				ts.Check(err)
				ts.Defer(func() { ts.Check(b.Close()) })
			},
			"serving": func(ts *testscript.TestScript, _ bool, _ []string) {
				server := cosmostest.NewTestServer(t)
				ts.Setenv("URL", server.URL)
				ts.Setenv("KEY", server.Key)
			},
			"hold": func(ts *testscript.TestScript, _ bool, args []string) {
				db, err := docstore.Open(ts.MkAbs(args[0]), docstore.Options{})
				ts.Check(err)
				ts.Defer(func() { ts.Check(db.Close()) })
			},
		},
	})
}

// park parks letters of several keys, two of them with one id. A unit is its name and, in a container, what it reads.
func park(ctx context.Context, path, container string, unit ...string) (err error) {
	box, end, err := openBox(ctx, path, container, unit...)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, end()) }()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := feed.DeadLetter{
		ID: "12.0", Disposition: feed.DispositionFailed, Cause: "no such address:\n\x1b[31m5 Elm Street", Attempts: 5,
		Instance: "one", Lease: "-1F", Range: feed.Range{Max: "1F"}, Failed: at, Parked: at.Add(time.Minute),
		Change: feed.Change{
			ID: "order-7", PartitionKey: feed.Key("London"), LSN: 12, Time: at, ETag: `"0f"`,
			Body: json.RawMessage(`{"id":"order-7","city":"London"}`),
		},
	}
	held, namesake, odd := one, one, one
	held.ID, held.Change.LSN, held.Disposition, held.Cause, held.Attempts = "13.0", 13, feed.DispositionHeld, "", 0
	namesake.Change.PartitionKey, namesake.Change.Body = feed.Key("Paris"),
		json.RawMessage(`{"id":"order-7","city":"Paris"}`)
	odd.ID, odd.Change.LSN, odd.Change.PartitionKey = "14.1", 14, feed.Key(nil, 5)
	odd.Disposition, odd.Stack, odd.Change.Body = feed.DispositionUndecodable, "goroutine 1\n\tmain.go:1",
		json.RawMessage("\xffnot JSON")
	for _, l := range []feed.DeadLetter{held, one, namesake, odd} {
		if err := box.Put(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// openBox opens a file of letters or, if it is named, a container, which is made.
func openBox(ctx context.Context, path, container string, unit ...string) (feed.LetterBox, func() error, error) {
	if container == "" {
		b, err := deadletters.File(path, unit[0])
		return b, func() error { return b.Close() }, err
	}
	db, err := docstore.Open(path, docstore.Options{})
	if err != nil {
		return nil, nil, err
	}
	var opened []*docstore.Container
	for _, id := range append([]string{container}, unit[1:]...) {
		c, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: id, Paths: []string{deadletters.KeyPath}})
		if errors.Is(err, feed.ErrConflict) {
			c, err = db.Container(id)
		}
		if err != nil {
			return nil, nil, errors.Join(err, db.Close())
		}
		opened = append(opened, c)
	}
	b, err := deadletters.Container(opened[0], unit[0], opened[len(opened)-1])
	return b, db.Close, err
}

// exits runs a command that ends with an exit code.
func exits(code int) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		err := ts.Exec(args[0], args[1:]...)
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != code {
			ts.Fatalf("%v: got %v, want exit code %d", args, err, code)
		}
	}
}

// generated are n small documents of many partition keys.
func generated(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"id": "%06d", "outcode": "K%d", "name": "Number %d", "rating": %d.50}`+"\n", i, i%97, i, i%6)
	}
	return b.Bytes()
}

// handled is what a processor handled.
type handled struct {
	changes  int
	versions map[string]int // by key and id
}

// process handles the feed of a container from its beginning, or from where the unit
// stopped, until nothing is left.
func process(ctx context.Context, dir, container, unit string) (h handled, err error) {
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		return h, err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	monitored, err := db.Container(container)
	if err != nil {
		return h, err
	}
	leases, err := db.Container("leases")
	if err != nil {
		if leases, err = db.CreateContainer(ctx, docstore.LeaseSpec("leases")); err != nil {
			return h, err
		}
	}
	store, err := docstore.NewLeases(ctx, leases, unit, monitored)
	if err != nil {
		return h, err
	}
	return drain(ctx, monitored, store)
}

// drain runs one instance until its unit has no lag.
func drain(ctx context.Context, monitored *docstore.Container, store *docstore.Leases) (h handled, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	h.versions = map[string]int{}
	var mu sync.Mutex
	batches, ready := make(chan struct{}, 1), make(chan struct{})
	count := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		h.changes += len(b.Changes)
		for _, c := range b.Changes {
			h.versions[string(c.PartitionKey)+c.ID]++
		}
		return nil
	})
	done := func(context.Context, feed.BatchDone) {
		select {
		case batches <- struct{}{}:
		default:
		}
	}
	p, err := changefeed.New(monitored, store, count, changefeed.Options{
		Instance: "one", Start: feed.FromBeginning(),
		Hooks: changefeed.Hooks{BatchDone: done, Ready: func(context.Context) { close(ready) }},
	})
	if err != nil {
		return h, err
	}
	running, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { err = p.Run(running) })
	select {
	case <-ready: // before, there may be some of the leases only
	case <-ctx.Done():
	}
	for lag := int64(1); lag > 0 && ctx.Err() == nil; {
		select {
		case <-batches:
		case <-time.After(10 * time.Millisecond): // the position is stored after the batch is done
		case <-ctx.Done():
		}
		lags, lerr := changefeed.Estimate(ctx, monitored, store)
		if lerr != nil {
			break
		}
		lag = int64(1 - min(1, len(lags)))
		for _, l := range lags {
			lag += l.Pending
		}
	}
	stop()
	work.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return h, err
}

// TestWhatIsImportedIsHandledOnce is the way of the README, on generated documents and,
// where there are some, on real ones.
func TestWhatIsImportedIsHandledOnce(t *testing.T) {
	t.Run("generated", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "generated.ndjson")
		if err := os.WriteFile(file, generated(500), 0o644); err != nil {
			t.Fatal(err)
		}
		checkImported(t, file, 500)
	})
	t.Run("restaurants", func(t *testing.T) {
		folder := os.Getenv("CHANGEFEED_DATA")
		if folder == "" {
			t.Skip("CHANGEFEED_DATA does not name a folder with restaurants.ndjson")
		}
		checkImported(t, filepath.Join(folder, "restaurants.ndjson"), 2548)
	})
}

func checkImported(t *testing.T, file string, want int) {
	t.Helper()
	dir := t.TempDir()
	rejects := filepath.Join(t.TempDir(), "rejects")
	for round := 1; round <= 2; round++ {
		out := command(t, "import", file, "--db", dir, "--container", "c", "--pk", "/outcode", "--ranges", "4",
			"--rejects", rejects, "-o", "json")
		var got load.Result
		if err := json.Unmarshal([]byte(out), &got); err != nil || got.Imported != int64(want) || got.Rejected != 0 {
			t.Fatalf("import %d: got %s, %v, want %d imported and none rejected", round, out, err, want)
		}
		h, err := process(t.Context(), dir, "c", "unit")
		if err != nil {
			t.Fatalf("process: %v", err)
		}
		if h.changes != want || len(h.versions) != want {
			t.Errorf("import %d: handled %d changes of %d documents, want %d of %[3]d", round, h.changes,
				len(h.versions), want)
		}
		all := command(t, "tail", "--db", dir, "--container", "c", "--once")
		if n := bytes.Count([]byte(all), []byte("\n")); n != want {
			t.Errorf("import %d: the feed has %d entries, want one for each of %d documents", round, n, want)
		}
	}
}

// command runs a command that succeeds, and returns its output.
func command(t *testing.T, args ...string) string {
	t.Helper()
	out, said, err := call(t, args...)
	if err != nil {
		t.Fatalf("changefeed %v: %v\n%s", args, err, said)
	}
	return out
}

// call runs a command, and returns what it has written to standard output and to standard error, and its error.
func call(t *testing.T, args ...string) (out, said string, err error) {
	t.Helper()
	var to, errs bytes.Buffer
	root := rootCommand(new(bool))
	root.SetArgs(args)
	root.SetOut(&to)
	root.SetErr(&errs)
	err = root.ExecuteContext(t.Context())
	return to.String(), errs.String(), err
}

// said is what a command has written to standard error so far.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// String is all of it.
func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// awaitText waits until a command has said a text so many times.
func awaitText(t *testing.T, out *said, text string, times int) {
	t.Helper()
	tick, most := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for strings.Count(out.String(), text) != times {
		select {
		case <-most:
			t.Fatalf("said %q, want %q %d times", out.String(), text, times)
		case <-tick.C:
		}
	}
}

// orders imports three documents and returns the address of their container.
func importOrders(t *testing.T) string {
	t.Helper()
	in, dir := filepath.Join(t.TempDir(), "in"), t.TempDir()
	if err := os.WriteFile(in, []byte(`{"id":"1"}`+"\n"+`{"id":"2"}`+"\n"+`{"id":"3"}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	orders := "docstore:" + dir + "#orders"
	command(t, "import", in, orders, "--pk", "/id")
	return orders
}

// begin runs a command until ctx ends.
func begin(ctx context.Context, out io.Writer, args ...string) (errs *said, ended <-chan error) {
	errs = &said{}
	root := rootCommand(new(bool))
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	return errs, done
}

// answerInvocations is a custom handler that prints the documents of each invocation.
func answerInvocations() {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"))
	if err == nil {
		err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				return
			}
			var call struct{ Data struct{ Docs string } }
			var text string
			if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_ = json.Unmarshal([]byte(call.Data.Docs), &text)
			var docs []struct{ ID string }
			_ = json.Unmarshal([]byte(text), &docs)
			if _, err := os.Stat("broken"); err == nil {
				http.Error(w, "broken", http.StatusInternalServerError)
				return
			}
			for _, doc := range docs {
				fmt.Printf("%s has %q\n", r.URL.Path[1:], doc.ID)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("{}"))
		}))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
