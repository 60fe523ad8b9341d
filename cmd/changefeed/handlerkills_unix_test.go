//go:build unix

package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

var (
	handlerRounds = flag.Int("handlers.rounds", 1, "how many seeds of kills each kind of handler has")
	handlerSeed   = flag.Uint64("handlers.seed", 0, "the first seed; 0 draws one")
)

// Whom a round kills.
const (
	killsHost    = "host"
	killsHandler = "handler"
	killsServer  = "server"
)

const (
	killsInRound = 6
	longestPause = 500 * time.Millisecond // before a kill
)

// outlivesKills kills the host, the handler and the server in a random order, each at least once, while orders are
// written, of which some fail, some end their handler and some get nonsense for an answer.
func outlivesKills(c *suiteCell) {
	first := *handlerSeed
	if first == 0 {
		first = rand.Uint64N(1_000_000) | 1
	}
	for seed := range uint64(*handlerRounds) {
		c.Run(fmt.Sprint("seed=", first+seed), func(t *testing.T) { killRound(t, c, first+seed) })
	}
}

// killRound is a round with a seed. An even one may kill a host that makes the leases of the unit, after which another
// makes them half a minute later.
func killRound(t *testing.T, like *suiteCell, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	server := startSuiteServer(t)
	c := newSuiteCell(t, server.url, "kills", like.kind, like.suiteSettings)
	c.shaken = true
	c.start()
	if seed%2 == 1 {
		c.awaitSaid("change feed processor ready")
	}
	victims := []string{killsHost, killsHandler, killsServer}
	for len(victims) < killsInRound {
		victims = append(victims, victims[random.IntN(3)])
	}
	random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	t.Logf("-handlers.seed %d kills %v", seed, victims)
	for _, victim := range victims {
		c.writeRandom(random)
		<-time.After(time.Duration(random.Int64N(int64(longestPause))))
		switch victim {
		case killsHost:
			c.killHost()
			c.startHost()
		case killsHandler:
			c.killHandler()
		case killsServer:
			server.crash()
		}
	}
	c.writeRandom(random)
	c.awaitAllHandled()
	c.stopHost()
	c.checkOrder()
	c.checkPositions()
}

// writeRandom writes some orders, of which some are handled only when they come again.
func (c *suiteCell) writeRandom(random *rand.Rand) {
	c.Helper()
	does := []string{doFail, doDie}
	if c.kind.cannot["nonsense"] == "" {
		does = append(does, doNonsense)
	}
	for range 5 + random.IntN(10) {
		o := suiteOrder{}
		if random.IntN(10) == 0 {
			o = suiteOrder{Do: does[random.IntN(len(does))], Times: 1, Text: "no such street"}
		}
		c.write(fmt.Sprintf("key%d", random.IntN(6)), o)
	}
}

// killHandler kills the youngest handler, if it lives: the process that has its number may be another one by now.
func (c *suiteCell) killHandler() {
	c.Helper()
	starts := c.noted(noteStart)
	if len(starts) == 0 {
		return
	}
	pid := starts[len(starts)-1].PID
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err == nil && slices.ContainsFunc(bytes.Split(line, []byte{0}), func(arg []byte) bool {
		return string(arg) == c.dir
	}) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
	}
}
