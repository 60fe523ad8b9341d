//go:build unix

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The promises of the suite of handlers.

// handlesInOrder: changes of a key come in order, and each once. A host that ends has stored its position, so the next
// one goes on behind it.
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

func repeatsWhatHasFailed(c *suiteCell) {
	c.writeSome(1, "a", "b")
	c.write("a", suiteOrder{Do: doFail, Times: 2, Text: "no such street"})
	c.writeSome(1, "a", "b")
	c.start()
	c.awaitAllHandled()
	c.awaitSaid("no such street")
	c.awaitAttempt(3)
	c.stopHost()
	c.checkPositions()
}

func repeatsFailedItemsAlone(c *suiteCell) {
	c.writeSome(2, "a", "b")
	c.write("c", suiteOrder{Do: doFail, Times: 2, Text: "no such street"})
	c.write("d", suiteOrder{Do: doFail, Times: 1, Text: "no such street"})
	c.writeSome(2, "a", "b")
	c.start()
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

func keepsWhatIsDone(c *suiteCell) {
	c.writeSome(2, "a", "b")
	c.write("a", suiteOrder{Do: doStop, Times: 2, Text: "the disk is full"})
	c.writeSome(2, "a", "b")
	c.start()
	c.awaitAllHandled()
	c.awaitSaid("the disk is full")
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

func parksPoisonAtOnce(c *suiteCell) {
	c.writeSome(2, "a", "b")
	poison := c.write("c", suiteOrder{Do: doPoison, Text: "no such street"})
	c.writeSome(1, "a", "b", "c") // the last one is not tried before the poison is parked
	c.start()
	c.awaitAllHandled(poison.ID)
	c.checkLetters(suiteLetter{Item: poison.ID, Attempts: 1, Cause: "no such street", Disposition: "poison"})
	c.stopHost()
	c.checkOrder(poison.ID)
	c.checkOnce()
	c.checkPositions()
}

func parksWhatFailsTooOften(c *suiteCell) {
	c.writeSome(3, "a")
	bad := c.write("c", suiteOrder{Do: doFail, Times: c.maxAttempts, Text: "no such street"})
	c.start()
	c.awaitAllHandled(bad.ID)
	c.awaitSaid("change parked")
	later := c.write("c", suiteOrder{})
	c.writeSome(1, "a")
	c.awaitAllHandled(bad.ID, later.ID)
	c.checkLetters(suiteLetter{Item: bad.ID, Attempts: c.maxAttempts, Cause: "no such street", Disposition: "failed"},
		suiteLetter{Item: later.ID, Disposition: "held"})
	if times := c.handledTimes(); times[bad.ID]+times[later.ID] > 0 {
		c.Error("a parked change is handled")
	}
	command(c.T, "dlq", "retry", c.base+"/letters", "--name", suiteUnit, "--key", bad.Key, "--all")
	c.awaitAllHandled()
	c.checkLetters()
	c.stopHost()
	c.checkOrder()
	c.checkPositions()
}

func endsWhatHangs(c *suiteCell) {
	c.writeSome(2, "a")
	stuck := c.write("c", suiteOrder{Do: doHang})
	c.writeSome(2, "a")
	c.start()
	c.awaitAllHandled(stuck.ID)
	c.checkLetters(suiteLetter{Item: stuck.ID, Attempts: c.maxAttempts, Cause: c.kind.late, Disposition: "failed"})
	batches := c.noted(noteBatch)
	if waited := batches[1].At.Sub(batches[0].At); waited < c.deadline {
		c.Errorf("the batch after one that hangs comes after %v, want %v at least", waited, c.deadline)
	}
	c.stopHost()
	c.checkOrder(stuck.ID)
	c.checkPositions()
}

// outlivesItsHandler: pauses vary by half, except for those before a start.
func outlivesItsHandler(c *suiteCell) {
	const deaths, pause = 4, 100 * time.Millisecond
	c.writeSome(2, "a")
	c.write("a", suiteOrder{Do: doDie, Times: deaths})
	c.writeSome(2, "a")
	c.start()
	c.awaitAllHandled()
	c.stopHost()
	begun, again := c.noted(noteBatch), c.noted(noteBatch)
	least := pause / 2
	if c.kind.isKept {
		again, least = c.noted(noteStart), pause
	}
	if len(begun) <= deaths || len(again) <= deaths {
		c.Fatalf("%d batches and %d starts, want %d at least", len(begun), len(again), deaths+1)
	}
	for i := range deaths {
		if got, want := again[i+1].At.Sub(begun[i].At), least<<i; got < want {
			c.Errorf("death %d is followed by a pause of %v, want %v at least", i+1, got, want)
		}
	}
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

func parksWhatIsDeadly(c *suiteCell) {
	c.writeSome(2, "a")
	deadly := c.write("c", suiteOrder{Do: doDie})
	c.writeSome(2, "a")
	c.start()
	c.awaitAllHandled(deadly.ID)
	c.checkLetters(suiteLetter{Item: deadly.ID, Attempts: c.maxAttempts, Cause: "killed", Disposition: "failed"})
	c.stopHost()
	c.checkOrder(deadly.ID)
	c.checkOnce()
	c.checkPositions()
}

// blamesTheDeadlyAlone: how often the letter's change has come depends on what was in hand beside it.
func blamesTheDeadlyAlone(c *suiteCell) {
	keys := []string{"a", "b", "d", "e", "f", "g", "h"}
	c.writeSome(3, keys...)
	deadly := c.write("c", suiteOrder{Do: doDie})
	c.writeSome(2, keys...)
	c.start()
	c.awaitAllHandled(deadly.ID)
	c.checkLetters(suiteLetter{Item: deadly.ID, Cause: "killed", Disposition: "failed"})
	c.stopHost()
	c.checkOrder(deadly.ID)
	c.checkPositions()
}

func countsNonsenseAsFailed(c *suiteCell) {
	c.writeSome(2, "a")
	bad := c.write("c", suiteOrder{Do: doNonsense})
	c.writeSome(2, "a")
	c.start()
	c.awaitAllHandled(bad.ID)
	c.checkLetters(suiteLetter{Item: bad.ID, Attempts: c.maxAttempts, Cause: suiteNonsense, Disposition: "failed"})
	c.awaitSaid(suiteNonsense)
	c.stopHost()
	c.checkOrder(bad.ID)
	c.checkOnce()
	c.checkPositions()
}

func waitsForASlowStart(c *suiteCell) {
	c.writeSome(3, "a", "b")
	c.closeGate("slow")
	c.start()
	c.awaitNoted(noteStart, 1)
	c.awaitSaid("lease acquired")
	c.writeSome(1, "a", "b")
	if handled := c.noted(noteHandled); len(handled) > 0 {
		c.Errorf("%v before the handler has started", handled)
	}
	c.openGate("slow")
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

func countsNoAttemptBeforeTheStart(c *suiteCell) {
	c.writeSome(3, "a", "b")
	c.write("c", suiteOrder{Do: doFail, Times: c.maxAttempts - 1, Text: "no such street"})
	c.closeGate("slow")
	c.start()
	c.awaitSaid("lease acquired")
	<-time.After(5 * c.deadline / 2)
	c.openGate("slow")
	c.awaitAllHandled()
	c.checkLetters()
	c.stopHost()
	c.checkOrder()
	c.checkPositions()
}

func countsNoAttemptOfABrokenStart(c *suiteCell) {
	const starts = 3
	c.writeSome(3, "a", "b")
	c.write("c", suiteOrder{Do: doFail, Times: c.maxAttempts - 1, Text: "no such street"})
	if err := os.WriteFile(filepath.Join(c.dir, "broken"), make([]byte, starts), 0o644); err != nil {
		c.Fatal(err)
	}
	c.start()
	c.awaitNoted(noteStart, starts+1)
	c.awaitAllHandled()
	c.checkLetters()
	if c.kind.isKept {
		c.awaitSaid(brokenStart)
	}
	c.stopHost()
	c.checkOrder()
	c.checkPositions()
}

func drains(c *suiteCell) {
	c.write("a", suiteOrder{Do: doWait})
	c.writeSome(5, "a")
	c.closeGate("gate")
	c.start()
	c.awaitNoted(noteWait, 1)
	c.signalHost(syscall.SIGTERM)
	c.awaitSaid("to finish (--drain)")
	c.openGate("gate")
	c.awaitHostEnd()
	if got := len(c.noted(noteHandled)); got != c.batchSize {
		c.Errorf("%d changes are handled, want those of the batch in hand, %d", got, c.batchSize)
	}
	c.startHost()
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

func endsBesideAHang(c *suiteCell) {
	c.writeSome(1, "a")
	c.write("a", suiteOrder{Do: doHang, Times: 1})
	c.start()
	c.awaitNoted(noteBatch, 1)
	begun := time.Now()
	c.stopHost()
	if took := time.Since(begun); took < c.drain || took > suitePatience/2 {
		c.Errorf("the host has ended after %v, want %v and a little more", took, c.drain)
	}
	c.awaitSaid("not finished within 1s (--drain) and will come again")
	c.startHost()
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkPositions()
}

func endsDuringTheStart(c *suiteCell) {
	c.writeSome(2, "a")
	c.closeGate("slow")
	c.start()
	c.awaitSaid("lease acquired")
	c.awaitNoted(noteStart, 1)
	begun := time.Now()
	c.stopHost()
	if took := time.Since(begun); took > suitePatience/2 {
		c.Errorf("the host has ended after %v, want %v and a little more", took, c.drain)
	}
	if c.kind.prepare == nil || c.kind.isKept {
		c.removeGate("slow")
	} else { // the handler waits there still
		c.openGate("slow")
	}
	c.startHost()
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

// endsWithoutAServer: the position of the batch in hand cannot be stored, so the batch may come again.
func endsWithoutAServer(c *suiteCell) {
	server := startSuiteServer(c.T)
	c = newSuiteCell(c.T, server.url, "away", c.kind, c.suiteSettings)
	c.writeSome(2, "a")
	c.write("a", suiteOrder{Do: doWait})
	c.writeSome(3, "a")
	c.closeGate("gate")
	c.start()
	c.awaitNoted(noteWait, 1)
	server.kill()
	c.signalHost(syscall.SIGTERM)
	c.awaitSaid("to finish (--drain)")
	c.openGate("gate")
	begun := time.Now()
	select {
	case <-c.ended:
	case <-time.After(suitePatience):
		c.Fatal("the host does not end")
	}
	if took := time.Since(begun); took > suitePatience/2 {
		c.Errorf("the host has ended after %v, want a little more than %v", took, 2*c.drain)
	}
	server.restart()
	c.startHost()
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkPositions()
}

func goesOnAfterAReload(c *suiteCell) {
	c.write("a", suiteOrder{Do: doWait})
	c.writeSome(5, "a")
	c.closeGate("gate")
	c.start()
	c.awaitNoted(noteWait, 1)
	c.weight = 2
	c.writeFile()
	c.signalHost(syscall.SIGHUP)
	c.awaitSaid("file is taken over")
	c.openGate("gate")
	c.awaitAllHandled()
	c.await("two units have started", func() bool { return strings.Count(c.said(), "unit is started") == 2 })
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

func endsWhenAllIsHandled(c *suiteCell) {
	c.writeSome(4, "a", "b", "c")
	c.write("a", suiteOrder{Do: doFail, Times: 1, Text: "no such street"})
	c.start()
	c.awaitHostEnd()
	if missing := c.missing(); len(missing) > 0 {
		c.Errorf("the host has ended, and %v are not handled", missing)
	}
	c.checkOrder()
	c.checkPositions()
}

func keepsWhatIsStored(c *suiteCell) {
	c.writeSome(3, "a", "b")
	c.start()
	c.awaitAllHandled()
	c.await("the position is stored", func() bool { return c.behind() == 0 })
	c.killHost()
	c.startHost()
	c.writeSome(2, "a", "b")
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}

// endsWithItsHost: a pipe that nobody reads cannot be opened to write.
func endsWithItsHost(c *suiteCell) {
	if runtime.GOOS != "linux" {
		c.Skip("only on Linux does a process die with its parent")
	}
	c.write("a", suiteOrder{Do: doWait})
	c.writeSome(2, "a")
	c.closeGate("gate")
	c.start()
	c.awaitNoted(noteWait, 1)
	c.killHost()
	gate := filepath.Join(c.dir, "gate")
	c.await("nobody waits at the gate", func() bool {
		f, err := os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			_ = f.Close() // the handler reads the end of the pipe, and goes on
		}
		return err != nil
	})
	c.removeGate("gate")
	c.startHost()
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce()
	c.checkPositions()
}
