//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The suite of handlers: each promise is written once, and holds for each kind of handler. A case with a kind is a
// cell: a host and a handler in processes of their own, and a server on the loopback with its store on the disk.

// handlerCase is a promise of all handlers.
type handlerCase struct {
	name     string
	promises string // as docs/host.md says it
	suiteSettings
	run func(*suiteCell)
}

func handlerCases() []handlerCase {
	return []handlerCase{
		{
			name: "order", promises: "changes of a key come in order, each once",
			suiteSettings: suiteSettings{batchSize: 5, ranges: 2}, run: handlesInOrder,
		},
		{
			name: "fails", promises: "a failed batch comes again until success, and the log says why",
			run: repeatsWhatHasFailed,
		},
		{
			name: "items", promises: "of a batch, only the changes that the handler names come again",
			run: repeatsFailedItemsAlone,
		},
		{
			name: "done", promises: "of a batch, the first changes are done and the others come again",
			run: keepsWhatIsDone,
		},
		{
			name: "poison", promises: "a change that the handler calls poison is parked at once",
			suiteSettings: suiteSettings{maxAttempts: 5}, run: parksPoisonAtOnce,
		},
		{
			name: "limit", promises: "a change that fails too often is parked with the reason; the key is held, and a retry " +
				"of the letter goes on",
			suiteSettings: suiteSettings{maxAttempts: 3, hold: true}, run: parksWhatFailsTooOften,
		},
		{
			name: "hangs", promises: "a handler that hangs has failed at the deadline",
			suiteSettings: suiteSettings{maxAttempts: 2, deadline: 3 * time.Second}, run: endsWhatHangs,
		},
		{
			name: "dies", promises: "a handler that dies is started again after a growing pause, and the batch comes again",
			run: outlivesItsHandler,
		},
		{
			name: "deadly", promises: "a change that ends its handler again and again is parked",
			suiteSettings: suiteSettings{maxAttempts: 2}, run: parksWhatIsDeadly,
		},
		{
			name: "beside", promises: "a change that ends its handler is parked alone, also if others were in hand",
			suiteSettings: suiteSettings{maxAttempts: 2, ranges: 4}, run: blamesTheDeadlyAlone,
		},
		{
			name: "nonsense", promises: "an answer without a meaning counts as a failure, and the log shows the answer",
			suiteSettings: suiteSettings{maxAttempts: 2}, run: countsNonsenseAsFailed,
		},
		{
			name: "starts", promises: "a handler that starts slowly loses nothing",
			suiteSettings: suiteSettings{startsBadly: true}, run: waitsForASlowStart,
		},
		{
			name: "late", promises: "a start that takes longer than the deadline of a batch counts no attempt",
			suiteSettings: suiteSettings{startsBadly: true, deadline: 2 * time.Second, maxAttempts: 2},
			run:           countsNoAttemptBeforeTheStart,
		},
		{
			name: "broken", promises: "a handler that ends during its start counts no attempt, and the log says why",
			suiteSettings: suiteSettings{startsBadly: true, maxAttempts: 2}, run: countsNoAttemptOfABrokenStart,
		},
		{
			name: "drain", promises: "at SIGTERM the batch in hand is finished, the position is stored, and no other batch " +
				"begins",
			suiteSettings: suiteSettings{batchSize: 2}, run: drains,
		},
		{
			name: "stuck", promises: "a batch that is not finished within `drain` comes again to the next host",
			suiteSettings: suiteSettings{drain: time.Second, grace: 300 * time.Millisecond}, run: endsBesideAHang,
		},
		{
			name: "early", promises: "at SIGTERM during the start of the handler the host ends, and the changes come to the " +
				"next owner",
			suiteSettings: suiteSettings{startsBadly: true, drain: time.Second, grace: 300 * time.Millisecond},
			run:           endsDuringTheStart,
		},
		{
			name: "away", promises: "at SIGTERM the host ends, also if the server is away, and the changes come to the next " +
				"owner",
			suiteSettings: suiteSettings{batchSize: 2, drain: time.Second, grace: 300 * time.Millisecond},
			run:           endsWithoutAServer,
		},
		{
			name: "reload", promises: "at SIGHUP a changed unit finishes the batch in hand, and goes on with the settings in the " +
				"file",
			suiteSettings: suiteSettings{batchSize: 2}, run: goesOnAfterAReload,
		},
		{
			name: "once", promises: "a host with `once` ends when all changes are handled",
			suiteSettings: suiteSettings{once: true, batchSize: 3, ranges: 2}, run: endsWhenAllIsHandled,
		},
		{
			name: "kept", promises: "after kill -9, at most the last two batches come again",
			suiteSettings: suiteSettings{batchSize: 2}, run: keepsWhatIsStored,
		},
		{
			name: "orphan", promises: "on Linux, a handler ends with its host, also at kill -9",
			run: endsWithItsHost,
		},
		{
			name: "kills", promises: "though host, handler and server are killed at any time, all changes are handled, in " +
				"order",
			suiteSettings: suiteSettings{batchSize: 4, ranges: 2}, run: outlivesKills,
		},
	}
}

func TestHandlersKeepTheirPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes half a minute of processes")
	}
	server := startSuiteServer(t)
	for _, promise := range handlerCases() {
		for _, kind := range handlerKinds() {
			t.Run(promise.name+"/"+kind.name, func(t *testing.T) {
				if reason := kind.cannot[promise.name]; reason != "" {
					t.Skip(reason)
				}
				t.Parallel()
				promise.run(newSuiteCell(t, server.url, promise.name+"-"+kind.name, kind, promise.suiteSettings))
			})
		}
	}
}

// startSuiteServer starts a server, until the test ends.
func startSuiteServer(t *testing.T) *shop {
	t.Helper()
	s := newShop(t, shopTimes{})
	none := filepath.Join(s.dir, "none")
	if err := os.WriteFile(none, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", none, "docstore:"+s.store()+"#suite/none", "--pk", "/key")
	s.url = s.serve("127.0.0.1:0")
	t.Cleanup(s.shut)
	return s
}

// The page says of each promise which kinds keep it, and why the others do not.
func TestThePageOfHostsHasThePromisesOfHandlers(t *testing.T) {
	page, err := os.ReadFile("../../docs/host.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## What each handler promises\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var want strings.Builder
	for _, promise := range handlerCases() {
		fmt.Fprintf(&want, "| %s |", promise.promises)
		for _, kind := range handlerKinds() {
			cell := "yes"
			if reason := kind.cannot[promise.name]; reason != "" {
				cell = "no: " + reason
			}
			fmt.Fprintf(&want, " %s |", cell)
		}
		want.WriteString("\n")
	}
	if !strings.Contains(table, "|---|---|---|---|---|\n"+want.String()) {
		t.Errorf("docs/host.md has\n%s\nwant\n%s", table, &want)
	}
}
