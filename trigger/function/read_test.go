package function

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// An app as the portal and the documentation of Azure have it: comments, a comma too many, numbers as texts, names in
// other cases, and a function with another trigger.
func TestAnAppOfAzureIsRead(t *testing.T) {
	app, err := ReadApp("testdata/orders", ReadOptions{Environ: []string{"Database=store", "HOME=/home/me"}})
	if err != nil {
		t.Fatal(err)
	}
	account := Connection{Setting: "ShopAccount", Endpoint: "http://127.0.0.1:8081/", Key: "c2VjcmV0"}
	standard := Trigger{
		Name: "docs", Database: "store", Container: "orders", Connection: account, LeaseDatabase: "store",
		LeaseContainer: "leases", LeaseConnection: account, Poll: 5 * time.Second, Acquire: 13 * time.Second,
		Expiration: time.Minute, Renew: 17 * time.Second,
	}
	copies := standard
	copies.Name, copies.LeasePrefix, copies.CreateLeases, copies.MaxItems = "orders", "copies", true, 100
	copies.Poll, copies.FromBeginning = time.Second, true
	want := &App{
		Dir: app.Dir, Timeout: 5 * time.Minute, UserAgentSuffix: "orders-app",
		Program: Program{
			Executable: "handler", Arguments: []string{"--port", "%FUNCTIONS_CUSTOMHANDLER_PORT%"},
			Start: 30 * time.Second,
		},
		Functions: []Function{
			{
				Name: "Copies", Trigger: copies,
				Outputs: []Output{{
					Name: "copies", Database: "store", Container: "copies", Connection: account, Create: true,
					PartitionKey: "/id",
				}},
				Retry: &Retry{Max: -1, Least: time.Second, Most: 15 * time.Minute, IsExponential: true},
			},
			{Name: "Seen", Trigger: standard, Retry: &Retry{Max: 5, Fixed: 10 * time.Second}},
		},
		Environ: []string{
			"Database=store", "HOME=/home/me", "FUNCTIONS_WORKER_RUNTIME=custom",
			"ShopAccount=AccountEndpoint=http://127.0.0.1:8081/;AccountKey=c2VjcmV0;",
		},
		Notices: []string{
			"host.json: extensions.cosmosDB.connectionMode is Direct: requests go through the gateway of the account; " +
				"the changes are the same",
			"Hello does not run: its trigger is httpTrigger, and only functions with a cosmosDBTrigger run here",
		},
	}
	if !reflect.DeepEqual(app, want) {
		t.Errorf("got %+v\nwant %+v", app, want)
	}
	if !filepath.IsAbs(app.Dir) {
		t.Errorf("Dir is %s", app.Dir)
	}
}

// Parts of an app that works, for tests that change one of them.
const (
	plainHost    = `{"version":"2.0","customHandler":{"description":{"defaultExecutablePath":"h"}}}`
	plainTrigger = `"type":"cosmosDBTrigger","direction":"in","name":"docs","databaseName":"shop","containerName":"orders"`
	plainAccount = "AccountEndpoint=https://acct.documents.azure.com:443/;AccountKey=c2VjcmV0;"
)

// writeApp writes the files of an app, and returns its directory.
func writeApp(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// readPlain reads an app with one function. Members are added to its trigger.
func readPlain(t *testing.T, members string, environ ...string) (*App, error) {
	t.Helper()
	return readFiles(t, map[string]string{"Seen/function.json": function(plainTrigger + members)}, environ...)
}

// function returns a function.json with one binding.
func function(trigger string) string { return `{"bindings":[{` + trigger + `}]}` }

// readFiles reads an app with files beside its host.json, or in its place.
func readFiles(t *testing.T, files map[string]string, environ ...string) (*App, error) {
	t.Helper()
	all := map[string]string{"host.json": plainHost}
	maps.Copy(all, files)
	return ReadApp(writeApp(t, all), ReadOptions{Environ: append(environ, "CosmosDB="+plainAccount)})
}

// Each option of a trigger is obeyed.
func TestEachOptionOfATriggerIsObeyed(t *testing.T) {
	other := Connection{Setting: "Other", Endpoint: "https://other.documents.azure.com", Key: "b3RoZXI="}
	for members, edit := range map[string]func(*Trigger){
		``: func(*Trigger) {},
		`"databaseName":"%Env%"`: func(d *Trigger) {
			d.Database, d.LeaseDatabase = "dev-1", "dev-1"
		},
		`"containerName":"o-%Env%"`: func(d *Trigger) {
			d.Container = "o-dev-1"
		},
		`"CONTAINERNAME":"o"`: func(d *Trigger) {
			d.Container = "o"
		},
		`"connection":"Other"`: func(d *Trigger) {
			d.Connection, d.LeaseConnection = other, other
		},
		`"connection":""`: func(*Trigger) {},
		`"leaseConnection":"Other"`: func(d *Trigger) {
			d.LeaseConnection = other
		},
		`"leaseDatabaseName":"%Env%"`: func(d *Trigger) {
			d.LeaseDatabase = "dev-1"
		},
		`"leaseContainerName":"l-%Env%"`: func(d *Trigger) {
			d.LeaseContainer = "l-dev-1"
		},
		`"createLeaseContainerIfNotExists":true`: func(d *Trigger) {
			d.CreateLeases = true
		},
		`"createLeaseContainerIfNotExists":"True"`: func(d *Trigger) {
			d.CreateLeases = true
		},
		`"createLeaseContainerIfNotExists":"false"`: func(*Trigger) {},
		`"leasesContainerThroughput":400`: func(d *Trigger) {
			d.LeaseThroughput = 400
		},
		`"leaseContainerPrefix":"p-%Env%"`: func(d *Trigger) {
			d.LeasePrefix = "p-dev-1"
		},
		`"leaseContainerPrefix":""`: func(*Trigger) {},
		`"feedPollDelay":250`: func(d *Trigger) {
			d.Poll = 250 * time.Millisecond
		},
		`"feedPollDelay":"250"`: func(d *Trigger) {
			d.Poll = 250 * time.Millisecond
		},
		`"feedPollDelay":0,"leaseAcquireInterval":-1,"maxItemsPerInvocation":-5`: func(*Trigger) {},
		`"leaseAcquireInterval":2000`: func(d *Trigger) {
			d.Acquire = 2 * time.Second
		},
		`"leaseExpirationInterval":30000`: func(d *Trigger) {
			d.Expiration = 30 * time.Second
		},
		`"leaseRenewInterval":3000`: func(d *Trigger) {
			d.Renew = 3 * time.Second
		},
		`"maxItemsPerInvocation":10`: func(d *Trigger) {
			d.MaxItems = 10
		},
		`"maxItemsPerInvocation":null`: func(*Trigger) {},
		`"startFromBeginning":true`: func(d *Trigger) {
			d.FromBeginning = true
		},
		`"startFromTime":"2026-11-22T04:06:09Z"`: func(d *Trigger) {
			d.FromTime = time.Date(2026, 11, 22, 4, 6, 9, 0, time.UTC)
		},
		`"startFromTime":"0001-01-01T00:00:00Z"`: func(d *Trigger) {
			d.FromBeginning = true
		},
		`"startFromTime":"%Since%"`: func(d *Trigger) {
			d.FromTime = time.Date(2026, 11, 22, 2, 6, 9, 123456700, time.UTC)
		},
		`"preferredLocations":"West Europe, %Region%"`: func(d *Trigger) {
			d.Regions = []string{"West Europe", "North Europe"}
		},
		`"changeFeedMode":"allVersionsAndDeletes"`: func(d *Trigger) {
			d.AllVersions = true
		},
		`"changeFeedMode":"LatestVersion"`: func(*Trigger) {},
		`"dataType":"string"`:              func(*Trigger) {},
	} {
		trigger := plainTrigger
		if strings.Contains(members, `"databaseName"`) {
			trigger = strings.Replace(trigger, `,"databaseName":"shop"`, "", 1)
		}
		if strings.Contains(strings.ToLower(members), `"containername"`) {
			trigger = strings.Replace(trigger, `,"containerName":"orders"`, "", 1)
		}
		if members != "" {
			trigger += "," + members
		}
		app, err := readFiles(t, map[string]string{"Seen/function.json": function(trigger)},
			"ENV=dev-1", "Region=North Europe", "Since=2026-11-22T04:06:09.1234567+02:00",
			"Other=AccountKey=b3RoZXI= ; AccountEndpoint=https://other.documents.azure.com")
		if err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		account := Connection{Setting: "CosmosDB", Endpoint: "https://acct.documents.azure.com:443/", Key: "c2VjcmV0"}
		want := Trigger{
			Name: "docs", Database: "shop", Container: "orders", Connection: account, LeaseDatabase: "shop",
			LeaseContainer: "leases", LeaseConnection: account, Poll: 5 * time.Second, Acquire: 13 * time.Second,
			Expiration: time.Minute, Renew: 17 * time.Second,
		}
		edit(&want)
		got := app.Functions[0].Trigger
		if got.FromTime = got.FromTime.UTC(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v\nwant %+v", members, got, want)
		}
	}
}

// What cannot be obeyed is refused, with the file, the path, the value and what would be right.
func TestWhatATriggerCannotHaveIsRefused(t *testing.T) {
	for members, want := range readRefused(t, "testdata/refused-trigger.txt") {
		want = "Seen/function.json: bindings[0]." + want
		app, err := readPlain(t, ","+members)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%s: got %v, %v\nwant %s", members, app, err, want)
		}
	}
}

// readRefused reads a file with mistakes, each on a line with $, and the beginnings of the errors about them, each on
// the next line with !.
func readRefused(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refused, mistake := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if given, ok := strings.CutPrefix(line, "$ "); ok {
			mistake = given
		} else if want, ok := strings.CutPrefix(line, "! "); ok {
			refused[mistake] = want
		}
	}
	if len(refused) == 0 {
		t.Fatalf("%s has no mistakes", file)
	}
	return refused
}

func TestAFunctionThatCannotRunIsRefused(t *testing.T) {
	const seen = "Seen/function.json"
	refused := readRefused(t, "testdata/refused-function.txt")
	refused[""] = "line 1: it is no JSON: unexpected end of JSON input"
	refused["{\n\"bindings\" 5"] = "line 2: it is no JSON: "
	for text, want := range refused {
		app, err := readFiles(t, map[string]string{seen: text})
		if err == nil || !strings.HasPrefix(err.Error(), seen+": "+want) {
			t.Errorf("%s: got %v, %v\nwant %s", text, app, err, want)
		}
	}
	app, err := readFiles(t, map[string]string{"9/function.json": function(plainTrigger)})
	if err == nil || !strings.HasPrefix(err.Error(), "9: the name of a function is a letter") {
		t.Errorf("got %v, %v", app, err)
	}
}

// with returns a function.json with a second binding.
func with(binding string) string { return `{"bindings":[{` + plainTrigger + `},{` + binding + `}]}` }

func TestAnOutputIsObeyed(t *testing.T) {
	app, err := readFiles(t, map[string]string{"Seen/function.json": with(`"type":"CosmosDB","direction":"OUT",
		"name":"$return","databaseName":"%Db%","containerName":"c-%Db%","createIfNotExists":"true","partitionKey":"/a/b",
		"containerThroughput":"800","preferredLocations":"West Europe","dataType":"Binary"`)}, "Db=d")
	if err != nil {
		t.Fatal(err)
	}
	want := []Output{{
		Name: "$return", Database: "d", Container: "c-d", Connection: app.Functions[0].Trigger.Connection, Create: true,
		PartitionKey: "/a/b", Throughput: 800, Regions: []string{"West Europe"}, IsBinary: true,
	}}
	if got := app.Functions[0].Outputs; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// All mistakes of all files are named at once.
func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	_, err := readFiles(t, map[string]string{
		"host.json":        `{"functionTimeout":"x"}`,
		"A/function.json":  function(plainTrigger + `,"feedPollDelay":"x","leaseCollectionPrefix":"p"`),
		"Bc/function.json": `{"bindings":[{"type":"cosmosDBTrigger"}]}`,
	})
	if err == nil {
		t.Fatal("no error")
	}
	var begins []string
	for line := range strings.Lines(err.Error()) {
		begin, _, _ := strings.Cut(line, " is ")
		begins = append(begins, begin)
	}
	want := []string{
		"host.json: functionTimeout", "host.json has no customHandler: want one with description.defaultExecutablePath\n",
		"A/function.json: bindings[0].leaseCollectionPrefix", "A/function.json: bindings[0].feedPollDelay",
		"Bc/function.json: bindings[0].name", "Bc/function.json: bindings[0].databaseName",
		"Bc/function.json: bindings[0].containerName",
	}
	if !slices.Equal(begins, want) {
		t.Errorf("got %q\nwant %q", begins, want)
	}
}

func TestFunctionsThatShareAFeedAreRefused(t *testing.T) {
	prefix := func(p string) string { return function(plainTrigger + `,"leaseContainerPrefix":"` + p + `"`) }
	for _, tt := range []struct {
		a, b string
		want string
	}{
		{function(plainTrigger), prefix("b"), ""},
		{
			function(plainTrigger), prefix(""), `A and B read shop/orders with the same leases (shop/leases, ` +
				`leaseContainerPrefix ""), so each change would reach only one of the two`,
		},
		{prefix("a"), prefix("a"), `A and B read`},
		{function(plainTrigger), function(plainTrigger + `,"leaseContainerName":"other"`), ""},
		{function(plainTrigger), function(plainTrigger + `,"leaseConnection":"Same"`), `A and B read`},
		{function(plainTrigger), function(plainTrigger + `,"leaseConnection":"Other"`), ""},
		{function(plainTrigger), `{"disabled":true,"bindings":[{` + plainTrigger + `}]}`, ""},
	} {
		_, err := readFiles(t, map[string]string{"A/function.json": tt.a, "B/function.json": tt.b},
			"Same=AccountEndpoint=https://ACCT.documents.azure.com/;AccountKey=c2VjcmV0",
			"Other=AccountEndpoint=https://other.documents.azure.com/;AccountKey=c2VjcmV0")
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s\n%s: got %v, want %q", tt.a, tt.b, err, tt.want)
		}
	}
}

func TestAFunctionThatIsSwitchedOffDoesNotRun(t *testing.T) {
	for _, tt := range []struct {
		disabled, setting, notice string
	}{
		{`true`, "", "Seen does not run: function.json has disabled"},
		{`"TRUE"`, "", "Seen does not run: function.json has disabled"},
		{`false`, "", ""},
		{`"Off"`, "Off=1", "Seen does not run: function.json has disabled, by the setting Off"},
		{`"%Off%"`, "Off=true", "Seen does not run: function.json has disabled, by the setting Off"},
		{`"Off"`, "Off=false", ""},
		{`"Off"`, "", ""},
		{`null`, "AzureWebJobs.Seen.Disabled=true", "Seen does not run: the setting AzureWebJobs.Seen.Disabled is true"},
		{`null`, "AzureWebJobs__Seen__Disabled=1", "Seen does not run: the setting AzureWebJobs:Seen:Disabled is 1"},
		{`null`, "AzureWebJobs.Seen.Disabled=false", ""},
		{`null`, "AzureWebJobs.Other.Disabled=true", ""},
	} {
		app, err := readFiles(t, map[string]string{
			"Seen/function.json": `{"disabled":` + tt.disabled + `,"bindings":[{` + plainTrigger + `}]}`,
		}, tt.setting)
		if err != nil {
			t.Fatal(err)
		}
		notice := strings.Join(app.Notices, "\n")
		if notice != tt.notice || (len(app.Functions) == 1) != (notice == "") {
			t.Errorf("%+v: %d functions, notices %q", tt, len(app.Functions), notice)
		}
	}
}

// A function that is not asked for does not keep another one from running.
func TestOnlyTheFunctionsThatAreAskedForAreRead(t *testing.T) {
	dir := writeApp(t, map[string]string{
		"host.json": plainHost, "Good/function.json": function(plainTrigger), "Bad/function.json": `{`,
		"Good/notes.txt": "", "docs/readme.md": "",
	})
	environ := []string{"CosmosDB=" + plainAccount}
	app, err := ReadApp(dir, ReadOptions{Environ: environ, Only: []string{"Good"}})
	if err != nil || len(app.Functions) != 1 || app.Functions[0].Name != "Good" || len(app.Notices) != 0 {
		t.Errorf("got %+v, %v", app, err)
	}
	if _, err := ReadApp(dir, ReadOptions{Environ: environ, Only: []string{"Goof"}}); err == nil ||
		err.Error() != "there is no function Goof: want Good" {
		t.Errorf("got %v", err)
	}
	if _, err := ReadApp(dir, ReadOptions{Environ: environ, Only: []string{"good"}}); err == nil ||
		err.Error() != "there is no function good: want Good" {
		t.Errorf("got %v", err)
	}
	if _, err := ReadApp(t.TempDir(), ReadOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is no app", err)
	}
}
