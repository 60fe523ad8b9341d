package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/outbox/natspub"
)

// program is the example at work, as its user starts it.
type program struct {
	testing.TB
	url   string
	lines *json.Decoder // of its standard output
	stop  func() error
}

func startProgram(t testing.TB, args ...string) *program {
	t.Helper()
	o, err := parseOptions(append([]string{"--listen", "127.0.0.1:0", "-o", "json"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	printed, stdout := io.Pipe()
	said, stderr := io.Pipe()
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		failed = o.runSystem(ctx, stdout, stderr)
		_ = stderr.CloseWithError(failed)
		_ = stdout.CloseWithError(failed)
	})
	p := &program{TB: t, lines: json.NewDecoder(printed)}
	p.stop = sync.OnceValue(func() error {
		cancel()
		running.Wait()
		return failed
	})
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
	first, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() { _, _ = io.Copy(io.Discard, said) })
	p.url = strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(first, "contacts")), "/")
	return p
}

// send sends a request, and returns the Location of what it made.
func (p *program) send(method, path, body string) string {
	p.Helper()
	r, err := http.NewRequestWithContext(p.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode >= http.StatusBadRequest {
		p.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	return answer.Header.Get("Location")
}

// next are the next events that the program prints, as key and subject.
func (p *program) next(n int) (events []string) {
	p.Helper()
	for range n {
		var e received
		if err := p.lines.Decode(&e); err != nil {
			p.Fatal(err)
		}
		if e.DelayMS <= 0 || e.ID == "" || e.Sequence == 0 {
			p.Errorf("printed %+v", e)
		}
		events = append(events, strings.TrimSpace(root+"/"+e.Key+" "+e.Subject))
	}
	return events
}

func TestTheWholeSystemInOneProcess(t *testing.T) {
	data := t.TempDir()
	p := startProgram(t, "--data", data, "--consumer", "test")
	path := p.send("POST", root, ada)
	p.send("POST", path+"/update-email", `{"email":"a@b"}`)
	if diff := cmp.Diff([]string{path + " ContactCreatedEvent", path + " ContactEmailUpdatedEvent"},
		p.next(2)); diff != "" {
		t.Error(diff)
	}

	// A page gets what there was, and what comes.
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.url+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	stream := bufio.NewScanner(answer.Body)
	for _, want := range []string{"ContactCreatedEvent", "ContactEmailUpdatedEvent", "ContactDeletedEvent"} {
		if want == "ContactDeletedEvent" {
			p.send("DELETE", path, "")
			p.next(1)
		}
		for stream.Scan() && !strings.HasPrefix(stream.Text(), "data: ") {
		}
		if !strings.Contains(stream.Text(), `"subject":"`+want+`"`) {
			t.Fatalf("the page gets %q, want %s", stream.Text(), want)
		}
	}
	if err := p.stop(); err != nil { // though a page is connected
		t.Fatal(err)
	}

	// Started again it goes on where it stopped: nothing is printed a second time.
	p = startProgram(t, "--data", data, "--consumer", "test")
	again := p.send("POST", root, ada)
	if diff := cmp.Diff([]string{again + " ContactCreatedEvent"}, p.next(1)); diff != "" {
		t.Error(diff)
	}
}

func TestTwoProcessesShareAServer(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	if _, err := server.DB.CreateDatabase(t.Context(), "crm", nil); err != nil {
		t.Fatal(err)
	}
	spec := docstore.ContainerSpec{
		Database: "crm", ID: "contacts", Paths: []string{"/partitionKey"},
		DefaultTTL: new(docstore.NoDefaultTTL),
	}
	if _, err := server.DB.CreateContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	nats, err := natspub.Embedded(t.Context(), t.TempDir(), natspub.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nats.Close() })
	var both [2]*program
	for i := range both {
		both[i] = startProgram(t, "--contacts", server.URL+"/crm/contacts", "--to", nats.URL(), "--consumer",
			[]string{"one", "two"}[i])
	}
	path := both[0].send("POST", root, ada)
	both[1].send("POST", path+"/update-email", `{"email":"a@b"}`)
	both[0].send("DELETE", path, "")
	want := []string{path + " ContactCreatedEvent", path + " ContactEmailUpdatedEvent", path + " ContactDeletedEvent"}
	for _, p := range both {
		if diff := cmp.Diff(want, p.next(3)); diff != "" {
			t.Error(diff)
		}
	}
	if err := both[0].stop(); err != nil {
		t.Fatal(err)
	}
	path = both[1].send("POST", root, ada)
	if diff := cmp.Diff([]string{path + " ContactCreatedEvent"}, both[1].next(1)); diff != "" {
		t.Error(diff)
	}
}

func TestABrokerIsRestarted(t *testing.T) {
	dir := t.TempDir()
	start := func(listen string) *natspub.Publisher {
		nats, err := natspub.Embedded(t.Context(), dir, natspub.Options{Listen: listen})
		if err != nil {
			t.Fatal(err)
		}
		return nats
	}
	nats := start("127.0.0.1:0")
	url := nats.URL()
	p := startProgram(t, "--data", t.TempDir(), "--to", url)
	first := p.send("POST", root, ada)
	if diff := cmp.Diff([]string{first + " ContactCreatedEvent"}, p.next(1)); diff != "" {
		t.Error(diff)
	}
	if err := nats.Close(); err != nil {
		t.Fatal(err)
	}
	second := p.send("POST", root, ada) // nobody can publish its event yet
	nats = start(strings.TrimPrefix(url, "nats://"))
	t.Cleanup(func() { _ = nats.Close() })
	if diff := cmp.Diff([]string{second + " ContactCreatedEvent"}, p.next(1)); diff != "" {
		t.Error(diff)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		ID:    "orders",
		Paths: []string{"/city"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--contacts", "contacts"}, "--contacts is \"contacts\": want docstore:"},
		{
			[]string{"--contacts", "docstore:" + dir + "#contacts", "--leases", "docstore:elsewhere#leases"},
			"want a container in the store or account of --contacts",
		},
		{
			[]string{"--contacts", cosmostest.NewTestServer(t).URL + "/crm/contacts"},
			"make it with the partition key /partitionKey",
		},
		{[]string{"--leases", "leases"}, "--leases is \"leases\": want docstore:"},
		{
			[]string{"--contacts", "docstore:" + dir + "#orders"},
			"#orders: want a container with the partition key /partitionKey",
		},
		{[]string{"--to", "smtp:here"}, "--to is smtp:here: want embedded:DIR"},
	} {
		o, err := parseOptions(append([]string{"--data", t.TempDir()}, test.args...))
		if err == nil {
			err = o.runSystem(t.Context(), io.Discard, io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %s", test.args, err, test.want)
		}
	}
	for _, args := range [][]string{{"-o", "xml"}, {"more"}} {
		if o, err := parseOptions(args); err == nil {
			t.Errorf("%v gives %+v", args, o)
		}
	}
}
