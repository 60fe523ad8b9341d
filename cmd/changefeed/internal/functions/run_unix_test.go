//go:build unix

package functions

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/trigger/function"
)

// The test binary itself is the custom handler, if the environment says so: it copies documents to its output, and
// fails for those that are bad.
func TestMain(m *testing.M) {
	if os.Getenv("FUNCTION_TEST") == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT"))
	if err == nil {
		err = http.Serve(l, http.HandlerFunc(copyDocuments))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// copyDocuments is the function.
func copyDocuments(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		return
	}
	var call struct{ Data struct{ Docs string } }
	var text string
	var docs []map[string]any
	err := errors.Join(json.NewDecoder(r.Body).Decode(&call), json.Unmarshal([]byte(call.Data.Docs), &text),
		json.Unmarshal([]byte(text), &docs))
	copies := []any{}
	for _, doc := range docs {
		if doc["bad"] == true {
			err = errors.Join(err, errors.New("bad"))
		}
		copies = append(copies, map[string]any{"id": fmt.Sprint(r.URL.Path[1:], "-", doc["id"])})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"Outputs": map[string]any{"copies": copies}})
}

// world is an account with the container orders, and an app.
type world struct {
	*testing.T

	server         *cosmostest.Server
	orders, leases *docstore.Container
	dir            string
}

// newWorld starts an account with some orders, in two partitions.
func newWorld(t *testing.T, orders int) *world {
	w := &world{T: t, server: cosmostest.StartTestServer(t, cosmostest.Options{}), dir: t.TempDir()}
	if _, err := w.server.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	w.orders = w.create(docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}, Ranges: 2})
	w.put(0, orders)
	w.write("host.json", `{"customHandler":{"description":{"defaultExecutablePath":`+quoted(os.Args[0])+`}},
		"retry":{"strategy":"fixedDelay","maxRetryCount":1,"delayInterval":"00:00:00"}}`)
	w.write("local.settings.json", `{"Values":{"FUNCTION_TEST":"copy","CosmosDB":`+
		quoted(w.server.ConnectionString())+`}}`)
	return w
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

func (w *world) create(spec docstore.ContainerSpec) *docstore.Container {
	w.Helper()
	spec.Database = "shop"
	c, err := w.server.DB.CreateContainer(w.Context(), spec)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// createLeases makes the lease container.
func (w *world) createLeases() {
	w.Helper()
	w.leases = w.create(docstore.LeaseSpec("leases"))
}

// put writes orders.
func (w *world) put(from, to int) {
	w.Helper()
	for n := from; n < to; n++ {
		w.upsert(w.orders, fmt.Sprintf(`{"id":"%d"}`, n))
	}
}

func (w *world) upsert(c *docstore.Container, doc string) {
	w.Helper()
	if _, err := c.Upsert(w.Context(), []byte(doc)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) write(file, text string) {
	w.Helper()
	file = filepath.Join(w.dir, file)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		w.Fatal(err)
	}
}

// writeFunction writes a function that reads orders and writes copies, with further members of its trigger.
func (w *world) writeFunction(name, members string) {
	w.write(name+"/function.json", `{"bindings":[
		{"type":"cosmosDBTrigger","direction":"in","name":"docs","databaseName":"shop","containerName":"orders"`+members+`},
		{"type":"cosmosDB","direction":"out","name":"copies","databaseName":"shop","containerName":"copies",
			"createIfNotExists":true,"partitionKey":"/id"}]}`)
}

// run runs the app until all is handled.
func (w *world) run(edit func(*Settings)) error {
	w.Helper()
	app, err := function.ReadApp(w.dir, function.ReadOptions{Environ: os.Environ()})
	if err != nil {
		w.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s := Settings{
		Options: changefeed.Options{Instance: "one", Drain: 10 * time.Second}, Once: true, Log: log, FunctionLog: log,
		Say: func(string) {}, Exit: func() {},
	}
	if edit != nil {
		edit(&s)
	}
	ctx, cancel := context.WithTimeout(w.Context(), runLimit)
	defer cancel()
	return Run(ctx, app, s)
}

// runLimit is how long an app runs at most.
const runLimit = time.Minute

// copies returns the ids of the documents that the functions have written, sorted by length.
func (w *world) copies() []string {
	w.Helper()
	c, err := w.server.DB.Container("shop/copies")
	if err != nil {
		w.Fatal(err)
	}
	return w.ids(c)
}

// ids returns the ids of the documents of a container.
func (w *world) ids(c *docstore.Container) (ids []string) {
	w.Helper()
	for it, err := range c.Items(w.Context(), feed.FullRange(), "") {
		if err != nil {
			w.Fatal(err)
		}
		if !strings.Contains(it.ID, ".host.") { // what says that an instance runs expires
			ids = append(ids, it.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// document returns a document.
func (w *world) document(c *docstore.Container, id string) (doc map[string]any) {
	w.Helper()
	for it, err := range c.Items(w.Context(), feed.FullRange(), "") {
		if err != nil {
			w.Fatal(err)
		}
		if it.ID == id && json.Unmarshal(it.Body, &doc) == nil {
			return doc
		}
	}
	w.Fatalf("there is no document %s", id)
	return nil
}

// A function that has run in Azure goes on from its own leases, which .NET has made: with no prefix and with one, and
// at the address by which .NET knows the account. The leases stay such that .NET goes on.
func TestAFunctionGoesOnFromItsLeasesInAzure(t *testing.T) {
	for _, prefix := range []string{"", "p-max10"} {
		w := newWorld(t, 20)
		w.createLeases()
		database, err := databaseOf(w.orders)
		if err != nil {
			t.Fatal(err)
		}
		name := prefix + "127.0.0.1_" + database + "_" + w.orders.RID()
		w.upsert(w.leases, `{"id":"`+name+`.info"}`)
		for token, bounds := range map[string]string{
			"0": `"min":"","max":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"`,
			"1": `"min":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF","max":"FF"`,
		} {
			w.upsert(w.leases, fmt.Sprintf(`{"id":"%s..%s","version":0,"_etag":null,"LeaseToken":"%[2]s",`+
				`"FeedRange":{"Range":{%s}},"Owner":null,"ContinuationToken":"\"%d\"","properties":{},"timestamp":"2026-11-22T03:04:39.9045171Z",`+
				`"Mode":"Incremental Feed"}`, name, token, bounds, w.orders.Head()))
		}
		w.put(20, 23)
		w.writeFunction("Seen", `,"leaseContainerPrefix":"`+prefix+`"`)
		if err := w.run(nil); err != nil {
			t.Fatalf("prefix %q: %v", prefix, err)
		}
		if got := w.copies(); !slices.Equal(got, []string{"Seen-20", "Seen-21", "Seen-22"}) {
			t.Errorf("prefix %q: copied %v, want the orders 20, 21 and 22", prefix, got)
		}
		if got := w.ids(w.leases); !slices.Equal(got, []string{name + "..0", name + "..1", name + ".info"}) {
			t.Errorf("prefix %q: the lease container has %v", prefix, got)
		}
		for _, token := range []string{"0", "1"} {
			l := w.document(w.leases, name+".."+token)
			if l["version"] != 0.0 || l["LeaseToken"] != token || l["Owner"] != nil ||
				l["ContinuationToken"] != fmt.Sprintf(`"%d"`, w.orders.Head()) || l["Mode"] != "Incremental Feed" {
				t.Errorf("prefix %q: lease %s is %v", prefix, token, l)
			}
		}
	}
}

// databaseOf returns the resource id of the database of a container.
func databaseOf(c *docstore.Container) (string, error) {
	const bytesOfDatabase = 4
	rid, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(c.RID(), "-", "/"))
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(base64.StdEncoding.EncodeToString(rid[:bytesOfDatabase]), "/", "-"), nil
}

// New leases begin now unless the function says otherwise. Leases that are there go on, whatever it says.
func TestTheStartIsForNewLeasesOnly(t *testing.T) {
	for start, want := range map[string][]string{
		"":                             {"Seen-3"},
		`,"startFromBeginning":"true"`: {"Seen-0", "Seen-1", "Seen-2", "Seen-3"},
		`,"startFromTime":"2020-01-01T00:00:00Z"`: {"Seen-0", "Seen-1", "Seen-2", "Seen-3"},
	} {
		w := newWorld(t, 3)
		w.writeFunction("Seen", `,"createLeaseContainerIfNotExists":true,"leasesContainerThroughput":500`+start)
		if err := w.run(nil); err != nil {
			t.Fatal(err)
		}
		w.put(3, 4)
		w.writeFunction("Seen", `,"startFromTime":"2021-01-01T00:00:00Z"`)
		if err := w.run(nil); err != nil {
			t.Fatalf("%s: the start has changed: %v", start, err)
		}
		if got := w.copies(); !slices.Equal(got, want) {
			t.Errorf("%s: copied %v, want %v", start, got, want)
		}
	}
}

// All functions of an app run in one process, and a change that a function cannot handle is parked after the retries of
// its policy.
func TestAllFunctionsRunAndBadChangesAreParked(t *testing.T) {
	w := newWorld(t, 2)
	w.upsert(w.orders, `{"id":"bad","bad":true}`)
	w.createLeases()
	w.writeFunction("Seen", `,"startFromBeginning":true`)
	w.writeFunction("Copies", `,"startFromBeginning":true,"leaseContainerPrefix":"copies"`)
	err := w.run(func(s *Settings) {
		s.Letters, s.Create = w.server.URL+"/shop/letters", true
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := w.copies(), []string{"Copies-0", "Copies-1", "Seen-0", "Seen-1"}; !slices.Equal(got, want) {
		t.Errorf("copied %v, want %v", got, want)
	}
	letters, err := w.server.DB.Container("shop/letters")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(w.ids(letters), " ")
	for _, name := range []string{"copies", "Seen"} { // a unit without a name has the letters of its function
		if !strings.Contains(got, name) {
			t.Errorf("parked %s, want a letter of %s", got, name)
		}
	}
	var attempts []any // of each letter: the first, and maxRetryCount
	for _, id := range w.ids(letters) {
		if letter, ok := w.document(letters, id)["letter"].(map[string]any); ok {
			attempts = append(attempts, letter["attempts"])
		}
	}
	if !slices.Equal(attempts, []any{2.0, 2.0}) {
		t.Errorf("parked after %v attempts, want 2 each", attempts)
	}
}

func TestAFunctionThatCannotRunEndsAll(t *testing.T) {
	w := newWorld(t, 1)
	w.writeFunction("Good", `,"createLeaseContainerIfNotExists":true,"leaseContainerName":"others"`)
	w.writeFunction("Seen", "")
	began := time.Now()
	err := w.run(func(s *Settings) { s.Once = false })
	if took := time.Since(began); took >= runLimit {
		t.Errorf("the others have gone on for %v", took)
	}
	want := "function Seen: the lease container is " + w.server.URL + "/shop/leases: there is no such container"
	if err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "createLeaseContainerIfNotExists") {
		t.Errorf("got %v", err)
	}
	w.write("host.json", `{"customHandler":{"description":{"defaultExecutablePath":"h"}}}`)
	err = w.run(func(s *Settings) { s.Letters = "letters" })
	if err == nil || !strings.Contains(err.Error(), "function Good: --dead-letters is set, and the function has no retry") {
		t.Errorf("got %v", err)
	}
}

// An identity is made of the settings without a request, and a key is one of the account alone.
func TestAnAccountHasTheCredentialOfItsSetting(t *testing.T) {
	app := &function.App{UserAgentSuffix: "mine"}
	for kind, want := range map[function.IdentityKind]string{
		function.IdentityManaged:  "*azidentity.ManagedIdentityCredential",
		function.IdentityWorkload: "*azidentity.WorkloadIdentityCredential",
		function.IdentitySecret:   "*azidentity.ClientSecretCredential",
		function.IdentityDefault:  "*azidentity.DefaultAzureCredential",
	} {
		c := function.Connection{Setting: "Shop", Endpoint: "https://acct.documents.azure.com"}
		c.Identity = function.Identity{
			Kind: kind, TenantID: "11111111-1111-1111-1111-111111111111", ClientID: "c", Secret: "s", TokenFile: "/f",
		}
		l, err := loginOf(app, c, []string{"West Europe"})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		got := fmt.Sprintf("%T", l.Identity.(*namedIdentity).TokenCredential)
		if got != want || l.Key != "" || l.Agent != "mine" || !slices.Equal(l.Regions, []string{"West Europe"}) {
			t.Errorf("%s: got %s, %+v, want %s", kind, got, l, want)
		}
	}
}

// A check opens the containers of each function, and starts no program.
func TestACheckOpensTheContainersOfAnApp(t *testing.T) {
	w := newWorld(t, 1)
	w.writeFunction("Good", `,"connection":"CosmosDB","createLeaseContainerIfNotExists":true`)
	w.writeFunction("Bad", `,"connection":"CosmosDB","leaseDatabaseName":"nowhere","leaseContainerPrefix":"bad"`)
	w.writeFunction("Worse", `,"connection":"CosmosDB","leaseDatabaseName":"nowhere","leaseContainerPrefix":"worse"`)
	app, err := function.ReadApp(w.dir, function.ReadOptions{Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	s := Settings{Options: changefeed.Options{Instance: "one", Drain: 10 * time.Second}, Log: log, FunctionLog: log}
	err = Check(t.Context(), app, s)
	if err == nil || !strings.HasPrefix(err.Error(), "function Bad: ") || strings.Contains(err.Error(), "Good") ||
		!strings.Contains(err.Error(), "\nfunction Worse: ") {
		t.Errorf("got %v, want the missing leases of Bad and of Worse", err)
	}
}
