// Package soak runs the command for an hour or for as long as you say: a server, two hosts with two units each, a
// relay, and viewers of their dashboards, in processes of their own. In the first half they are killed, frozen and
// throttled. Nothing may be lost, and in the quiet half the memory, the goroutines and the open files of each process
// must be flat.
package soak_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/internal/pause"
)

var (
	soakFor   = flag.Duration("soak.for", 0, "how long the soak lasts; 0 is not at all")
	soakChaos = flag.Duration("soak.chaos", 0, "how long of that there is chaos, at first")
	soakEvery = flag.Duration("soak.every", time.Minute, "time between samples")
	soakSeed  = flag.Uint64("soak.seed", 1, "seed of the chaos")
	keep      = flag.String("soak.keep", "", "directory to which the logs of the processes are copied")
)

func TestMain(m *testing.M) {
	if logs := os.Getenv(programVariable); logs != "" && os.Getenv("CHANGEFEED_CONTRACT") != "" {
		if err := runProgram(logs); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("it lasts as long as -soak.for says: see make soak")
	}
	s := newSystem(t, *soakSeed)
	writing, stopWriting := context.WithCancel(t.Context())
	watching, stopWatching := context.WithCancel(t.Context())
	var writers, watchers sync.WaitGroup
	defer watchers.Wait()
	defer stopWatching()
	defer writers.Wait()
	defer stopWriting()
	writers.Go(func() { s.writeOrders(writing) })
	writers.Go(func() { s.writeContacts(writing) })
	for _, p := range s.processes {
		watchers.Go(func() { s.view(watching, p) })
		watchers.Go(func() { s.listen(watching, p) })
	}
	watchers.Go(func() {
		for pause.For(watching, *soakEvery) == nil {
			s.measure(watching)
		}
	})
	chaotic, cancel := context.WithTimeout(t.Context(), *soakChaos)
	deeds := s.chaos(chaotic)
	cancel()
	quiet := time.Since(s.begun)
	// Half of the quiet time is for caches to be filled, and for what the last deeds have left.
	settle := (*soakFor - *soakChaos) / 2
	_ = pause.For(t.Context(), settle) // the test has not ended
	judged := time.Since(s.begun)
	logs := map[string]int64{}
	for _, unit := range units {
		logs[unit] = s.read(unit, 0).size
	}
	_ = pause.For(t.Context(), *soakFor-time.Since(s.begun)) // the test has not ended
	stopWriting()
	writers.Wait()
	s.awaitEnd()
	stopWatching()
	watchers.Wait()
	s.measure(t.Context())
	s.judge(judged, logs)
	s.report(quiet, judged, deeds)
	s.endAll()
}

// patience is how long the system may take until all is handled, after the last write.
const patience = 3 * time.Minute

// awaitEnd waits until everything is handled and published, and the lag is 0.
func (s *system) awaitEnd() {
	var left string
	for begun := time.Now(); time.Since(begun) < patience; _ = pause.For(s.t.Context(), time.Second) {
		none, _ := s.ledger.unpublished()
		lag, err := s.lag(s.t.Context())
		left = fmt.Sprintf("%d events are not published, the lag is %d, %v", none, lag, err)
		missing := 0
		for _, unit := range units {
			missing += len(s.read(unit, 0).missing)
		}
		if none == 0 && lag == 0 && err == nil && missing == 0 {
			return
		}
		left += fmt.Sprintf(", %d keys are not handled", missing)
	}
	s.t.Errorf("%v after the last write %s", patience, left)
}

// read reads the log of a unit.
func (s *system) read(unit string, from int64) account {
	a, err := s.ledger.read(filepath.Join(s.dir, unit+".handled"), from)
	if err != nil {
		s.t.Error(err)
	}
	return a
}

// judge says what was lost, what was wrong in the quiet time, and what has grown.
func (s *system) judge(from time.Duration, logs map[string]int64) {
	for _, unit := range units {
		a := s.read(unit, logs[unit])
		if len(a.missing) > 0 {
			s.t.Errorf("%s has not handled %d keys: %s", unit, len(a.missing), strings.Join(a.missing, ", "))
		}
		if a.lines == 0 || a.again > 0 || a.back > 0 {
			s.t.Errorf("in the quiet time %s has handled %d changes, %d of them again and %d out of order", unit, a.lines,
				a.again, a.back)
		}
	}
	for _, figure := range s.series {
		judged := since(figure.samples, from)
		if grown, most := growth(figure.figure, judged); grown > most {
			s.t.Errorf("%s of %s: %.0f more within %v, from %d samples, want %.0f at most", figure.figure, figure.process,
				grown, time.Since(s.begun)-from, len(judged), most)
		}
		if slices.ContainsFunc(judged, func(v sample) bool { return v.value == 0 }) {
			s.t.Errorf("%s of %s has samples of 0: the metric is missing", figure.figure, figure.process)
		}
	}
}

// report writes the tables for docs/benchmarks.md.
func (s *system) report(quiet, judged time.Duration, deeds map[string]int) {
	var text strings.Builder
	fmt.Fprintf(&text, "%v, chaos until %v, judged from %v\n\n", time.Since(s.begun).Round(time.Second),
		quiet.Round(time.Second), judged.Round(time.Second))
	text.WriteString("| process | figure | judged from | to | highest | growth |\n|---|---|---|---|---|---|\n")
	for _, figure := range s.series {
		text.WriteString(figure.row(judged) + "\n")
	}
	for _, unit := range units {
		a := s.read(unit, 0)
		fmt.Fprintf(&text, "\n%s: %d changes handled, %d of them again, %d out of order, %d keys missing", unit, a.lines,
			a.again, a.back, len(a.missing))
	}
	none, again := s.ledger.unpublished()
	fmt.Fprintf(&text, "\n%d writes of orders; %d events, %d not published, %d published again\n", s.ledger.writes,
		len(s.ledger.events), none, again)
	fmt.Fprintf(&text, "asked: %v\ndeeds: %v\n", s.asked, deeds)
	for _, p := range s.processes {
		fmt.Fprintf(&text, "%s was started %d times\n", p.name, p.started)
	}
	text.WriteString("\n| time | pending | on the disk |\n|---|---|---|\n")
	for _, size := range s.sizes {
		pending := "unknown"
		for _, lag := range s.lags {
			if lag.at == size.at {
				pending = fmt.Sprint(lag.value)
			}
		}
		fmt.Fprintf(&text, "| %v | %s | %.1f MiB |\n", size.at.Round(time.Second), pending, size.value/(1<<20))
	}
	s.t.Log("\n" + text.String())
}
