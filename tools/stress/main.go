// Command stress runs the tests of packages repeatedly while loops keep the processors busy, and reports which tests
// fail, how often and how. A test that needs an idle machine fails here, before a newcomer sees the failure.
//
//	go run ./tools/stress [-rounds 20] [-slow 5] [-loops 2] [PACKAGE…]
//
// Each package first runs once without the loops, to measure how long its tests take. Tests of a second or more run
// only in the first few rounds, because they would take nearly all of the time and rarely depend on timing. If -slow
// equals -rounds, all tests run in all rounds; if -slow is 0, the long tests run in no round.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

type options struct {
	rounds, slow, loops int
	run                 string
	limit               time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 20, "how often each test runs")
	flag.IntVar(&o.slow, "slow", 5, "how often those of a second or more do")
	flag.IntVar(&o.loops, "loops", 2, "how many loops keep the processors busy")
	flag.StringVar(&o.run, "run", "", "only the tests that match, as in go test")
	flag.DurationVar(&o.limit, "timeout", 20*time.Minute, "how long one round of a package may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := stress(ctx, o, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// stress runs all packages and reports whether a test failed.
func stress(ctx context.Context, o options, patterns []string) (failed bool, err error) {
	packages, err := list(ctx, patterns)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "stress-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	var reports []*report
	for _, p := range packages {
		r, err := p.stress(ctx, o, filepath.Join(dir, "package.test"))
		if err != nil {
			return false, err
		}
		reports = append(reports, r)
		fmt.Println(r)
		failed = failed || r.failures() > 0
	}
	fmt.Printf("\n== at most %d rounds beside %d busy loops\n", o.rounds, o.loops)
	for _, r := range reports {
		fmt.Println(r)
	}
	return failed, context.Cause(ctx)
}

// busy keeps n processors busy until stop is called. The loops never yield by themselves, like a neighbour on a
// shared machine.
func busy(n int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	for range n {
		loops.Go(func() {
			for ctx.Err() == nil {
			}
		})
	}
	return func() {
		cancel()
		loops.Wait()
	}
}
