//go:build unix

package functions

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/trigger/function"
)

// createIfNotExists makes the container of an output with its throughput, and the database if that is missing too.
func TestTheContainerOfAnOutputIsMade(t *testing.T) {
	w := newWorld(t, 2)
	w.createLeases()
	w.write("Seen/function.json", `{"bindings":[
		{"type":"cosmosDBTrigger","direction":"in","name":"docs","databaseName":"shop","containerName":"orders",
			"startFromBeginning":true},
		{"type":"cosmosDB","direction":"out","name":"copies","databaseName":"archive","containerName":"copies",
			"createIfNotExists":true,"partitionKey":"/id","containerThroughput":700}]}`)
	if err := w.run(nil); err != nil {
		t.Fatal(err)
	}
	copies, err := w.server.DB.Container("archive/copies")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.ids(copies); !slices.Equal(got, []string{"Seen-0", "Seen-1"}) {
		t.Errorf("copied %v", got)
	}
	opener := place.NewOpener(place.Settings{})
	login := &place.Login{From: "setting CosmosDB", Endpoint: w.server.URL, Key: w.server.Key}
	account, err := opener.Account(t.Context(), login.Address("the output", "archive", "copies"))
	if err != nil {
		t.Fatal(err)
	}
	offers, err := account.List(t.Context(), "Offers", "offers")
	of := func(offer []byte) bool {
		return bytes.Contains(offer, []byte(copies.RID())) && bytes.Contains(offer, []byte(`"offerThroughput":700`))
	}
	if err != nil || !slices.ContainsFunc(offers, of) {
		t.Errorf("the offers are %s, %v, want 700 for copies", offers, err)
	}
	if err := opener.Close(); err != nil {
		t.Error(err)
	}
}

// A host checks an app before anything starts: what would end the app at once is a mistake then.
func TestACheckFindsOutputsAndTheProgram(t *testing.T) {
	const output = `"type":"cosmosDB","direction":"out","name":"copies","databaseName":"shop","containerName":`
	for _, tt := range []struct{ output, program, want string }{
		{output + `"orders"`, os.Args[0], ""},
		{output + `"copies","createIfNotExists":true,"partitionKey":"/id"`, os.Args[0], ""},
		{output + `"copies"`, os.Args[0], "function Seen: output copies is "},
		{output + `"copies","createIfNotExists":true`, os.Args[0], "the binding has no partitionKey"},
		{output + `"orders"`, "nowhere-handler", "find program: "},
	} {
		w := newWorld(t, 0)
		w.createLeases()
		w.write("host.json", `{"customHandler":{"description":{"defaultExecutablePath":`+quoted(tt.program)+`}}}`)
		w.write("Seen/function.json", `{"bindings":[{"type":"cosmosDBTrigger","direction":"in","name":"docs",
			"databaseName":"shop","containerName":"orders"},{`+tt.output+`}]}`)
		app, err := function.ReadApp(w.dir, function.ReadOptions{Environ: os.Environ()})
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		s := Settings{Options: changefeed.Options{Instance: "one", Drain: 10 * time.Second}, Log: log, FunctionLog: log}
		checked := Check(t.Context(), app, s)
		if (checked == nil) != (tt.want == "") || checked != nil && !strings.Contains(checked.Error(), tt.want) {
			t.Errorf("%s, program %s:\ngot  %v\nwant %q", tt.output, tt.program, checked, tt.want)
		}
		if _, err := w.server.DB.Container("shop/copies"); err == nil {
			t.Error("the check has made a container")
		}
	}
}

// The leases are in the account of leaseConnection, and the source is in that of connection.
func TestTheLeasesAreInTheirOwnAccount(t *testing.T) {
	w := newWorld(t, 1)
	other := cosmostest.NewTestServer(t)
	w.write("local.settings.json", `{"Values":{"FUNCTION_TEST":"copy","CosmosDB":`+
		quoted(w.server.ConnectionString())+`,"Other":`+quoted(other.ConnectionString())+`}}`)
	w.writeFunction("Seen", `,"leaseConnection":"Other","createLeaseContainerIfNotExists":true,"startFromBeginning":true`)
	if err := w.run(nil); err != nil {
		t.Fatal(err)
	}
	if got := w.copies(); !slices.Equal(got, []string{"Seen-0"}) {
		t.Errorf("copied %v", got)
	}
	if _, err := other.DB.Container("shop/leases"); err != nil {
		t.Errorf("in the account for leases: %v", err)
	}
	if _, err := w.server.DB.Container("shop/leases"); err == nil {
		t.Error("the account of the source has leases")
	}
}

// A managed identity is asked for by the id that the settings have. The endpoint is that of Azure App Service.
func TestAManagedIdentityIsAskedForByItsID(t *testing.T) {
	asked := make(chan string, 9)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.RawQuery
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"t","expires_on":"` +
			time.Now().Add(time.Hour).UTC().Format("1/2/2006 15:04:05 PM +00:00") + `","token_type":"Bearer"}`))
	}))
	t.Cleanup(endpoint.Close)
	t.Setenv("IDENTITY_ENDPOINT", endpoint.URL)
	t.Setenv("IDENTITY_HEADER", "secret")
	for want, i := range map[string]function.Identity{
		"client_id=mine":                 {ClientID: "mine"},
		"mi_res_id=%2Fsubscriptions%2Fs": {ResourceID: "/subscriptions/s"},
		"object_id=mine":                 {ObjectID: "mine"},
	} {
		i.Kind = function.IdentityManaged
		identity, err := identityOf(i)
		if err != nil {
			t.Fatal(err)
		}
		_, err = identity.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://a/.default"}})
		select {
		case query := <-asked:
			if !strings.Contains(query, want) {
				t.Errorf("asked for %s, want %s", query, want)
			}
		default:
			t.Errorf("%s: nobody was asked: %v", want, err)
		}
	}
}
