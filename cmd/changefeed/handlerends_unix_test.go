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

// The promises of the suite of handlers about the end of a host: by a signal, by itself, and by kill -9.

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
	c.endInOrder()
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
	c.leaveGate("slow")
	c.startHost()
	c.awaitAllHandled()
	c.endInOrder()
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
	c.endInOrder()
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

// keepsWhatIsStored kills the host with the third batch in hand: the position of the first one is stored, and that of
// the second one may be.
func keepsWhatIsStored(c *suiteCell) {
	c.writeSome(c.batchSize, "a")
	again := make([]string, 0, 2*c.batchSize)
	for range c.batchSize {
		again = append(again, c.write("a", suiteOrder{}).ID)
	}
	again = append(again, c.write("a", suiteOrder{Do: doWait}).ID)
	for len(again) < cap(again) {
		again = append(again, c.write("a", suiteOrder{}).ID)
	}
	c.writeSome(3, "a")
	c.closeGate("gate")
	c.start()
	c.awaitNoted(noteWait, 1)
	c.killHost()
	c.leaveGate("gate")
	c.startHost()
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkOnce(again...)
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
	c.endInOrder()
}
