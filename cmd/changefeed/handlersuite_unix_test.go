//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The suite of handlers: each promise is written once, and holds for each kind of handler. A case with a kind is a
// cell: a host and a handler in processes of their own, and a server on the loopback with its store on the disk.

// handlerCase is a promise of all handlers.
type handlerCase struct {
	name string
	suiteSettings
	run func(*suiteCell)
}

func handlerCases() []handlerCase {
	return []handlerCase{
		{name: "order", suiteSettings: suiteSettings{batchSize: 5}, run: handlesInOrder},
		{name: "nonsense", run: countsNonsenseAsFailed},
		{name: "dies", run: outlivesItsHandler},
	}
}

func TestHandlersKeepTheirPromises(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 30 s")
	}
	endpoint := startSuiteServer(t)
	for _, promise := range handlerCases() {
		for _, kind := range handlerKinds() {
			t.Run(promise.name+"/"+kind.name, func(t *testing.T) {
				if reason := kind.cannot[promise.name]; reason != "" {
					t.Skip(reason)
				}
				t.Parallel()
				promise.run(newSuiteCell(t, endpoint, promise.name+"-"+kind.name, kind, promise.suiteSettings))
			})
		}
	}
}

// startSuiteServer starts a server with nothing in it, until the test ends.
func startSuiteServer(t *testing.T) string {
	t.Helper()
	s := newShop(t, shopTimes{patience: time.Minute})
	none := filepath.Join(s.dir, "none")
	if err := os.WriteFile(none, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "import", none, "docstore:"+s.store()+"#suite/none", "--pk", "/key")
	endpoint := s.serve("127.0.0.1:0")
	t.Cleanup(s.shut)
	return endpoint
}

// Changes of a key come in order, and each once. A host that ends has stored its position, so the next one goes on
// behind it.
func handlesInOrder(c *suiteCell) {
	c.writeSome(6, "a", "b", "c")
	c.start()
	c.writeSome(6, "c", "d")
	c.awaitAllHandled()
	c.stopHost()
	c.checkPositions()
	c.startHost()
	c.writeSome(1, "a", "d")
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
}

// An answer that the dialect does not have is a failure: the batch comes again, and the log says what is wrong.
func countsNonsenseAsFailed(c *suiteCell) {
	c.writeSome(2, "a")
	c.write("a", suiteOrder{Do: doNonsense, Times: 2})
	c.writeSome(2, "a")
	c.start()
	c.awaitAllHandled()
	c.awaitSaid("handled, I think")
	c.stopHost()
	c.checkOrder()
	c.checkPositions()
}

// A handler that dies in a batch is started again, and the batch comes again.
func outlivesItsHandler(c *suiteCell) {
	c.writeSome(2, "a")
	c.write("a", suiteOrder{Do: doDie, Times: 3})
	c.writeSome(2, "a")
	c.start()
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}
