package function

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// hostJSON returns a host.json with further members, or with others in their place.
func hostJSON(members string) string {
	if strings.Contains(members, `"customHandler"`) || strings.Contains(members, `"httpWorker"`) {
		return "{" + members + "}"
	}
	return strings.TrimSuffix(plainHost, "}") + "," + members + "}"
}

func TestWhatHostJSONSaysIsObeyed(t *testing.T) {
	for members, edit := range map[string]func(*App){
		`"watchFiles":[]`:              func(*App) {},
		`"functionTimeout":"00:10:00"`: func(a *App) { a.Timeout = 10 * time.Minute },
		`"functionTimeout":"1.02:03"`:  func(a *App) { a.Timeout = 26*time.Hour + 3*time.Minute },
		`"functionTimeout":"-1"`:       func(a *App) { a.Timeout = 0 },
		`"functionTimeout":-1`:         func(a *App) { a.Timeout = 0 },
		`"extensions":{"CosmosDb":{"ConnectionMode":"gateway","userAgentSuffix":"x"},"http":{"routePrefix":""}}`: func(a *App) {
			a.UserAgentSuffix = "x"
		},
		`"extensions":{"cosmosDB":{"connectionMode":"Direct"}}`: func(a *App) {
			a.Notices = []string{"host.json: extensions.cosmosDB.connectionMode is Direct: requests go through the gateway " +
				"of the account; the changes are the same"}
		},
		`"retry":{"strategy":"FixedDelay","maxRetryCount":"3","delayInterval":"00:00:01.5"}`: func(a *App) {
			a.Functions[0].Retry = &Retry{Max: 3, Fixed: 1500 * time.Millisecond}
		},
		`"retry":{"maxRetryCount":0,"minimumInterval":"00:00:00","maximumInterval":"1.00:00:00"}`: func(a *App) {
			a.Functions[0].Retry = &Retry{Most: 24 * time.Hour, IsExponential: true}
		},
		`"httpWorker":{"description":{"defaultExecutablePath":"old"}}`: func(a *App) { a.Program.Executable = "old" },
		`"customHandler":{"description":{"defaultExecutablePath":"h"}},"httpWorker":{"description":{}}`: func(a *App) {
			a.Notices = []string{"host.json: httpWorker is the old name of customHandler, which is there too, and counts"}
		},
		`"customHandler":{"description":{"defaultExecutablePath":"node","arguments":["a b","%X%"],"defaultWorkerPath":"w.js",
			"workerArguments":["-v"],"workingDirectory":"bin"},"enableForwardingHttpRequest":true,
			"initializationTimeout":"00:01:00"}`: func(a *App) {
			a.Program = Program{
				Executable: "node", Arguments: []string{"a b", "%X%"}, WorkerPath: "w.js",
				WorkerArguments:  []string{"-v"},
				WorkingDirectory: "bin", Start: time.Minute, Forwards: true,
			}
		},
		`"functions":["SEEN"]`: func(*App) {},
		`"functions":["Other"]`: func(a *App) {
			a.Functions = nil
			a.Notices = []string{"Seen does not run: functions of host.json does not list it"}
		},
		`"logging":{},"extensionBundle":{},"concurrency":{},"http":{},"queues":5`: func(*App) {},
		`"portalNotes":{}`: func(a *App) {
			a.Notices = []string{"host.json: portalNotes is not known, and changes nothing here"}
		},
	} {
		app, err := readFiles(t, map[string]string{
			"host.json": hostJSON(members), "Seen/function.json": function(plainTrigger),
		})
		if err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		want, err := readPlain(t, "")
		if err != nil {
			t.Fatal(err)
		}
		edit(want)
		if want.Dir = app.Dir; !reflect.DeepEqual(app, want) {
			t.Errorf("%s: got %+v\nwant %+v", members, app, want)
		}
	}
}

func TestWhatHostJSONCannotHaveIsRefused(t *testing.T) {
	for members, want := range readRefused(t, "testdata/refused-host.txt") {
		app, err := readFiles(t, map[string]string{"host.json": hostJSON(members)})
		if err == nil || !strings.HasPrefix(err.Error(), "host.json: "+want) {
			t.Errorf("%s: got %v, %v\nwant %s", members, app, err, want)
		}
	}
	_, err := readFiles(t, map[string]string{"host.json": "{}"}, "FUNCTIONS_WORKER_RUNTIME=node")
	const want = "host.json has no customHandler: want one with description.defaultExecutablePath; " +
		"FUNCTIONS_WORKER_RUNTIME is node, and the workers of languages do not run here"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The policy of a function replaces that of host.json, and settings replace members of host.json.
func TestWhatIsNearerCounts(t *testing.T) {
	app, err := readFiles(t, map[string]string{
		"host.json": hostJSON(`"functionTimeout":"00:01:00","retry":{"maxRetryCount":9,"minimumInterval":"00:00:01",` +
			`"maximumInterval":"00:00:01"}`),
		"Seen/function.json": `{"retry":{"strategy":"fixedDelay","maxRetryCount":1,"delayInterval":"00:00:01"},"bindings":[{` +
			plainTrigger + `}]}`,
	}, "AzureFunctionsJobHost__functionTimeout=00:02:00",
		"AZUREFUNCTIONSJOBHOST__extensions__cosmosDB__userAgentSuffix=mine",
		"AzureFunctionsJobHost__customHandler__description__defaultExecutablePath=other")
	if err != nil {
		t.Fatal(err)
	}
	if r := app.Functions[0].Retry; *r != (Retry{Max: 1, Fixed: time.Second}) || app.Timeout != 2*time.Minute ||
		app.UserAgentSuffix != "mine" || app.Program.Executable != "other" {
		t.Errorf("got %+v, retry %+v", app, r)
	}
	_, err = readPlain(t, "", "AzureFunctionsJobHost__customHandler__description__arguments__0=x")
	if err == nil || !strings.HasPrefix(err.Error(), "the settings AzureFunctionsJobHost__customHandler__description__"+
		"arguments__0 and so on replace host.json: customHandler.description.arguments: want the array in the file") {
		t.Errorf("got %v", err)
	}
}

// Any text is read to an app or to an error, and no error has the key.
func FuzzReadFunction(f *testing.F) {
	f.Add(plainHost, function(plainTrigger))
	f.Add(`{"customHandler":{"description":5},"retry":[],}//`, with(`"type":"cosmosDB"`))
	f.Add("\xef\xbb\xbf{/*", `{"bindings":[{"connection":"`+plainAccount+`"}]}`)
	f.Fuzz(func(t *testing.T, host, function string) {
		dir := writeApp(t, map[string]string{"host.json": host, "Seen/function.json": function})
		app, err := ReadApp(dir, ReadOptions{Environ: []string{"CosmosDB=" + plainAccount}})
		if (app == nil) == (err == nil) {
			t.Errorf("got %v, %v", app, err)
		}
		if err != nil && strings.Contains(err.Error(), "c2VjcmV0") && !strings.Contains(host+function, "c2VjcmV0") {
			t.Errorf("an error has the key: %v", err)
		}
	})
}
