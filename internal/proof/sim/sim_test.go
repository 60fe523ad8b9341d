package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

var (
	seeds = flag.Int("seeds", detector.Rounds(40, 10), "how many seeds to run")
	from  = flag.Uint64("from", 1, "the first seed")

	steered = flag.Bool("steered", false, "only seeds whose operator pauses and resets leases")
)

// TestMain lets garbage pile up: runs are short, and there are many.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	flag.Parse()
	os.Exit(m.Run())
}

// play runs one seed in a bubble of its own.
func play(t *testing.T, seed uint64, hasLetters bool, bug Bug) (broken []string, story string) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		if broken, story, err = Run(t.Context(), seed, hasLetters, bug); err != nil {
			t.Error(err)
		}
	})
	return broken, story
}

// In every world there are dead letters, redrives, releases, drops, outages, and letter boxes that fail, hang and
// answer late.
func TestPromisesHoldUnderFaults(t *testing.T) { playAll(t, *seeds, true) }

// Where nothing is parked the order of pages, positions and attempts is known, so the checks are stricter; and where
// handlers checkpoint by hand nothing may be parked.
func TestPromisesHoldWithoutDeadLetters(t *testing.T) { playAll(t, max(1, *seeds/4), false) }

// playAll plays seeds and reports the promises that were broken.
func playAll(t *testing.T, seeds int, hasLetters bool) {
	for seed, n := *from, 0; n < seeds; seed++ {
		if *steered && !newWeather(seed, hasLetters).steered {
			continue
		}
		n++
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			broken, story := play(t, seed, hasLetters, nil)
			for _, b := range broken {
				t.Error(b)
			}
			if file := filepath.Join(t.ArtifactDir(), "story.txt"); story != "" {
				t.Logf("what happened is told in %s (kept with -artifacts)", file)
				if err := os.WriteFile(file, []byte(story), 0o600); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// blind is a lease store that writes without regard to the ETag.
type blind struct{ feed.LeaseStore }

func (s blind) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	got, err := s.LeaseStore.Update(ctx, l)
	for errors.Is(err, feed.ErrConflict) {
		var records []feed.Record
		if records, _, err = s.List(ctx); err != nil {
			return got, err
		}
		err = feed.ErrNotFound
		for _, stored := range records {
			if stored.ID == l.ID {
				l.ETag = stored.ETag
				got, err = s.LeaseStore.Update(ctx, l)
			}
		}
	}
	return got, err
}

func (s blind) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	return s.LeaseStore.(feed.Follower).Follow(ctx, cursor)
}

func TestTheCheckersFindALeaseStoreWithoutETags(t *testing.T) {
	if detector.On {
		t.Skip("it plays many worlds to test their checkers, which has nothing to do with data races")
	}
	const most = 40
	for seed := range uint64(most) {
		if broken, _ := play(t, seed, false, func(s feed.LeaseStore) feed.LeaseStore {
			return blind{s}
		}); len(broken) > 0 {
			t.Logf("seed %d: %s", seed, broken[0])
			return
		}
	}
	t.Errorf("%d seeds with a lease store that ignores ETags broke no promise", most)
}
