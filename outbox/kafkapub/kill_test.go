package kafkapub_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox/kafkapub"
)

var kills = flag.Int("kills", 20, "how often a process that publishes to Kafka exactly once is killed")

const (
	killDir     = "KAFKAPUB_DIR"     // the store of the process that is killed
	killBrokers = "KAFKAPUB_BROKERS" // with commas between them
	killKeys    = 5
)

func TestMain(m *testing.M) {
	flag.Parse()
	if dir := os.Getenv(killDir); dir != "" {
		fmt.Fprintln(os.Stderr, relayUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func relayUntilKilled(dir string) error {
	s, err := openKilled(dir)
	if err != nil {
		return err
	}
	return s.relay(context.Background(), strings.Split(os.Getenv(killBrokers), ","), func(*feed.Batch) {})
}

// killed is the store of a process that is killed again and again.
type killed struct {
	*docstore.DB
	events *docstore.Container
	leases feed.LeaseStore
}

func openKilled(dir string) (s killed, err error) {
	ctx := context.Background()
	// a kill loses nothing that was written
	if s.DB, err = docstore.Open(dir, docstore.Options{NoSync: true}); err != nil {
		return s, err
	}
	container := func(spec docstore.ContainerSpec) *docstore.Container {
		c, failed := s.CreateContainer(ctx, spec)
		if errors.Is(failed, feed.ErrConflict) {
			c, failed = s.Container(spec.ID)
		}
		err = errors.Join(err, failed)
		return c
	}
	s.events = container(docstore.ContainerSpec{ID: "contacts", Paths: []string{"/partitionKey"}, Ranges: 2})
	leases := container(docstore.LeaseSpec("leases"))
	if err == nil {
		s.leases, err = docstore.NewLeases(ctx, leases, "relay", s.events)
	}
	return s, err
}

// relay publishes the events of the store until ctx ends.
func (s killed) relay(ctx context.Context, brokers []string, handled func(*feed.Batch)) error {
	once, err := kafkapub.NewExactlyOnce(brokers, topic, "relay", kafkapub.ExactlyOnceOptions{Client: impatient()})
	if err != nil {
		return err
	}
	p, err := changefeed.New(s.events, s.leases, told{once, handled}, changefeed.Options{MaxItems: 2})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// told is a handler that says which batches are done.
type told struct {
	*kafkapub.ExactlyOnce
	handled func(*feed.Batch)
}

func (h told) Handle(ctx context.Context, b *feed.Batch) error {
	err := h.ExactlyOnce.Handle(ctx, b)
	if err == nil {
		h.handled(b)
	}
	return err
}

// bury does what else only time does: the leases of a process that was killed are free, and its presence is gone.
func (s killed) bury(t *testing.T) {
	t.Helper()
	records, _, err := s.leases.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		switch r.Kind {
		case feed.KindLease:
			r.Owner, r.Epoch = "", ""
			_, err = s.leases.Update(t.Context(), r)
		case feed.KindHost, feed.KindLock:
			err = s.leases.Delete(t.Context(), r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// add adds events, and notes what the topic should have of each key.
func (s killed) add(t *testing.T, round int, want map[string][]string) (added int) {
	t.Helper()
	for n := range 6 {
		for k := range killKeys {
			key, id := fmt.Sprint("key-", k), fmt.Sprintf("%d-%d-%d", k, round, n)
			body := fmt.Appendf(nil, `{"id":%q,"partitionKey":%q,"type":"domainEvent","data":{"action":"Done"}}`, id,
				key)
			if _, err := s.events.Upsert(t.Context(), body); err != nil {
				t.Fatal(err)
			}
			want[key] = append(want[key], id)
			added++
		}
	}
	return added
}

// killAt has Kafka kill a process at a request, which it does all the same or not at all. It returns which one it was.
func killAt(c *kfake.Cluster, process *os.Process, nth int, isLost bool) (reached chan string) {
	reached = make(chan string, 1)
	c.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		if nth--; nth > 0 {
			return nil, nil, false
		}
		_ = process.Kill()
		reached <- kmsg.NameForKey(r.Key())
		c.DropControl()
		if isLost {
			return nil, errors.New("connection lost"), true
		}
		return nil, nil, false
	})
	return reached
}

// TestEachEventIsPublishedOnceWhereverTheProcessIsKilled kills a process at any request to Kafka, again and again.
// Consumers that read what is committed have each event once, those of a key in order.
func TestEachEventIsPublishedOnceWhereverTheProcessIsKilled(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := startKafka(t)
	dir, want, total := t.TempDir(), map[string][]string{}, 0
	died := map[string]int{} // at which requests
	for round := range *kills {
		s, err := openKilled(dir)
		if err != nil {
			t.Fatal(err)
		}
		s.bury(t)
		total += s.add(t, round, want)
		if err := s.DB.Close(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), killDir+"="+dir, killBrokers+"="+strings.Join(c.ListenAddrs(), ","))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		nth := 1 + rand.IntN(80) // in so many it is not done
		reached := killAt(c, cmd.Process, nth, round%2 == 0)
		select {
		case key := <-reached:
			died[key]++
		case <-time.After(30 * time.Second):
			t.Fatalf("round %d: the process does not come to its request %d", round, nth)
		}
		if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	t.Logf("killed at %v", died)

	s, err := openKilled(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.DB.Close()
	s.bury(t)
	total += s.add(t, *kills, want)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var mu sync.Mutex
	last := map[string]bool{}
	if err := s.relay(ctx, c.ListenAddrs(), func(b *feed.Batch) {
		mu.Lock()
		defer mu.Unlock()
		for _, change := range b.Changes {
			if strings.Contains(change.ID, fmt.Sprintf("-%d-", *kills)) {
				last[change.ID] = true
			}
		}
		if len(last) == 6*killKeys {
			stop()
		}
	}); err != nil {
		t.Error(err)
	}
	got := stored(t, c)
	for key := range want {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("%s has %v, want %v", key, got[key], want[key])
		}
	}
}
