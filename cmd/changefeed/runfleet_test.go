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
	times := shopTimes{
		acquire: 500 * time.Millisecond, renew: 700 * time.Millisecond, expiration: 3 * time.Second, drain: 2 * time.Second,
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
	s.await("each process has a lease", func() bool { return len(s.owners()) == len(names) })
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
	s.await("the others have all leases", func() bool { o := s.owners(); return len(o) == 2 && o["c"] > 0 && o["d"] > 0 })
	<-resumed
	before := s.handlers()["b"]
	s.signal("b", syscall.SIGCONT)
	s.await("the one that was stopped knows that it was", func() bool { return s.lostLeases("b") })
	s.await("it works again", func() bool { return s.owners()["b"] > 0 && s.handlers()["b"] > before+1 })
	stop()
	s.await("everything is handled", func() bool { return !s.lacks() })
	s.await("the living have all leases", func() bool { o := s.owners(); return len(o) == 3 && o["b"]+o["c"]+o["d"] == 9 })
	s.close("b", "c", "d")

	t.Logf("batches by instance: %v", s.handlers())
	victims := map[string]bool{"a": true, "b": true}
	for _, name := range names {
		victims[name] = victims[name] || s.lostLeases(name)
	}
	for _, wrong := range judge(s.entries(), s.sold, victims) {
		t.Error(wrong)
	}
	s.checkLeases()
}
