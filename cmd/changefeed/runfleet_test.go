//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// shopTimes are the times of a fleet of processes.
type shopTimes struct {
	acquire, renew, expiration, drain time.Duration

	stopped  time.Duration // how long one process is
	patience time.Duration // with anything that must happen
}

// TestProcessesShareAServer has four processes share one server. One is killed, one is
// stopped for longer than its leases last, and meanwhile a lease's partition is split.
// In the end nothing is lost, changes of a key have come in order, and who was stopped
// has not undone what others did for it. With CHANGEFEED_SOAK=1 the leases have their
// default times, and the test takes some minutes.
func TestProcessesShareAServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s")
	}
	t.Parallel()
	times := shopTimes{
		acquire: 500 * time.Millisecond, renew: 700 * time.Millisecond, expiration: 3 * time.Second,
		drain:   2 * time.Second,
		stopped: 5 * time.Second, patience: time.Minute,
	}
	if os.Getenv("CHANGEFEED_SOAK") != "" {
		times = shopTimes{
			acquire: 13 * time.Second, renew: 17 * time.Second, expiration: time.Minute, drain: 10 * time.Second,
			stopped: 90 * time.Second, patience: 4 * time.Minute,
		}
	}
	s := openShop(t, times)
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		s.start(name)
	}
	s.awaitLeases(names)
	stop := s.sell()
	s.await("each process has handled something", func() bool {
		h := s.handlers()
		return min(h["a"], h["b"], h["c"], h["d"]) >= 5
	})

	s.signal("a", syscall.SIGKILL)
	s.signal("b", syscall.SIGSTOP)
	resumed := time.After(times.stopped)
	if s.owners()["b"] == 0 {
		t.Fatal("the process to be stopped had no lease: want that it loses some")
	}
	command(t, "split", s.url, "--at", "0C") // within the second of eight leases
	s.await("the others have all leases", func() bool {
		o := s.owners()
		return len(o) == 2 && o["c"] > 0 && o["d"] > 0
	})
	<-resumed
	before := s.handlers()["b"]
	s.signal("b", syscall.SIGCONT)
	s.await("the one that was stopped knows that it was", func() bool { return s.lostLeases("b") })
	s.await("it works again", func() bool { return s.owners()["b"] > 0 && s.handlers()["b"] > before+1 })
	stop()
	s.awaitHandled()
	s.await("the living have all leases", func() bool {
		o := s.owners()
		return len(o) == 3 && o["b"]+o["c"]+o["d"] == 9
	})
	s.close("b", "c", "d")

	s.judge("b", "a")
	if leases := s.checkLeases(); leases != 9 {
		t.Errorf("got %d leases, want eight of which one was split", leases)
	}
}

// TestProcessesOutliveTheirServer kills the server of four processes and starts it again
// in its place, more than once. Each time a process is killed too and another begins,
// and a partition is split, or two are merged. With CHANGEFEED_SOAK=1 that goes on for
// three minutes.
func TestProcessesOutliveTheirServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	t.Parallel()
	rounds, round := 2, time.Second
	if os.Getenv("CHANGEFEED_SOAK") != "" {
		rounds, round = 9, 20*time.Second
	}
	s := openShop(t, shopTimes{
		acquire: 500 * time.Millisecond, renew: 700 * time.Millisecond, expiration: 4 * time.Second,
		drain:    2 * time.Second,
		patience: time.Minute,
	})
	living := []string{"a", "b", "c", "d"}
	for _, name := range living {
		s.start(name)
	}
	var killed []string
	stop := s.sell()
	for i := range rounds {
		next := time.After(round)
		s.awaitLeases(living)
		s.crash()
		s.awaitHandled()
		s.reshape(i%2 == 1)
		s.signal(living[0], syscall.SIGKILL)
		killed = append(killed, living[0])
		living = append(living[1:], string(rune('e'+i)))
		s.start(living[3])
		<-next
	}
	s.awaitLeases(living)
	stop()
	s.awaitHandled()
	s.close(living...)
	s.judge("", killed...)
	s.checkLeases()
}
