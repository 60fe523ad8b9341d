//go:build unix

package main

import (
	"os"
	"path/filepath"
	"time"
)

// The promises of the suite of handlers about what a handler says and does.

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
	c.endInOrder()
}

func keepsWhatIsDone(c *suiteCell) {
	c.writeSome(2, "a", "b")
	c.write("a", suiteOrder{Do: doStop, Times: 2, Text: "the disk is full"})
	c.writeSome(2, "a", "b")
	c.start()
	c.awaitAllHandled()
	c.awaitSaid("the disk is full")
	c.endInOrder()
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
	c.endInOrder()
}

// countsNoAttemptBeforeTheStart has two keys: if three failed, the processor would see an outage by itself.
func countsNoAttemptBeforeTheStart(c *suiteCell) {
	c.writeSome(3, "a")
	c.write("c", suiteOrder{Do: doFail, Times: c.maxAttempts - 1, Text: "no such street"})
	c.closeGate("slow")
	c.start()
	c.awaitSaid("lease acquired")
	<-time.After(3 * c.deadline / 2) // one attempt, and with that of the failure the limit
	c.openGate("slow")
	c.awaitAllHandled()
	c.checkLetters()
	c.stopHost()
	c.checkOrder()
	c.checkPositions()
}

// countsNoAttemptOfABrokenStart has two keys, too.
func countsNoAttemptOfABrokenStart(c *suiteCell) {
	const starts = 3
	c.writeSome(3, "a")
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
