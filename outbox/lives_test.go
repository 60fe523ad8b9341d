package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/outbox"
)

// How an outbox is killed at every point
//
// A life is a process that commits units of work on a store on disk and publishes their events
// with two relays, until it kills itself with SIGKILL between two steps of that: the first time it
// comes there, in the next round of lives the second time, and so on. The last life finishes. Then
// each event must have been published, those of an object in order, and a consumer that drops
// duplicates must have seen each once.
//
// Lives are in virtual time, which the n-th begins n hours late: the leases of the one before have
// expired. The broker is a container of the same store that keeps whatever it gets; NATS and the
// others, which have goroutines of their own, are tried in real time.

var lifeRounds = flag.Int("lives.rounds", 4, "how often a life ends at each point of the crash test")

// points are where lives end.
var points = []string{
	"before a commit", "after a commit", "before a publish", "between two messages", "after a publish", "before a checkpoint", "after a checkpoint",
}

// The environment of a life.
const (
	lifeDir    = "CHANGEFEED_OUTBOX_DIR"
	lifeNumber = "CHANGEFEED_OUTBOX_LIFE" // from 1
	lifePoint  = "CHANGEFEED_OUTBOX_POINT"
	lifeTimes  = "CHANGEFEED_OUTBOX_TIMES" // how often it comes to the point
)

const lifeContacts = 5

// death kills the process when it has come to a point so often.
type death struct {
	point string
	left  atomic.Int64
}

func (d *death) at(point string) {
	if point == d.point && d.left.Add(-1) == 0 {
		fmt.Println("died", point)
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {} // until it has
	}
}

// mortalStore is where units of work are committed.
type mortalStore struct {
	*docstore.Container
	*death
}

func (s mortalStore) Commit(ctx context.Context, key changefeed.PartitionKey, writes []changefeed.Write) ([]changefeed.Result, error) {
	if writes[0].Op != changefeed.WriteRead {
		s.at("before a commit")
		defer s.at("after a commit")
	}
	return s.Container.Commit(ctx, key, writes)
}

// mortalLeases are where the relays keep their positions.
type mortalLeases struct {
	*docstore.Leases
	*death
}

func (s mortalLeases) Update(ctx context.Context, l changefeed.Record) (changefeed.Record, error) {
	s.at("before a checkpoint")
	defer s.at("after a checkpoint")
	return s.Leases.Update(ctx, l)
}

// mortalTopic is a broker that keeps all that it gets, duplicates as well.
type mortalTopic struct {
	*docstore.Container
	*death
	life int
	n    *atomic.Int64
}

// kept is a message as the topic has it.
type kept struct {
	ID, Key, Message, Action string
	Seq                      uint64
}

func (s mortalTopic) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	s.at("before a publish")
	for i, m := range msgs {
		body, err := json.Marshal(map[string]any{"id": fmt.Sprintf("%d-%d", s.life, s.n.Add(1)), "Key": m.Key, "Message": m.ID, "Action": m.Action, "Seq": m.Seq})
		if err != nil {
			return i, err
		}
		if _, err := s.Create(ctx, body); err != nil {
			return i, err
		}
		if i+1 < len(msgs) {
			s.at("between two messages")
		}
	}
	s.at("after a publish")
	return len(msgs), nil
}

// TestLife is a life, if the environment says so.
func TestLife(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv(lifeNumber))
	if n == 0 {
		t.Skip("it is for TestEachEventIsPublishedWhereverItsProcessIsKilled")
	}
	times, _ := strconv.Atoi(os.Getenv(lifeTimes))
	d := &death{point: os.Getenv(lifePoint)}
	d.left.Store(int64(times))
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Duration(n) * time.Hour)
		db, err := docstore.Open(os.Getenv(lifeDir), docstore.Options{CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		open := func(spec docstore.ContainerSpec) *docstore.Container {
			c, err := db.Container(spec.ID)
			if err != nil {
				c, err = db.CreateContainer(t.Context(), spec)
			}
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		contacts := open(docstore.ContainerSpec{ID: "contacts", Paths: []string{"/partitionKey"}, DefaultTTL: new(docstore.NoDefaultTTL), Ranges: 2})
		topic := open(docstore.ContainerSpec{ID: "topic", Paths: []string{"/Key"}})
		leases := open(docstore.LeaseSpec("leases"))
		live(t, contacts, leases, mortalTopic{topic, d, n, new(atomic.Int64)}, n, d)
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	fmt.Println("lived on")
}

// live commits changes of contacts while two relays publish the events, until nothing is left.
func live(t *testing.T, contacts, leases *docstore.Container, to outbox.Publisher, n int, d *death) {
	store, err := docstore.NewLeases(t.Context(), leases, "relay", contacts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	for i := range 2 {
		r := newRelay(t, to, outbox.RelayOptions{})
		p, err := changefeed.New(contacts, mortalLeases{store, d}, r, r.Options(changefeed.Options{
			Instance: fmt.Sprint("relay", i), Start: changefeed.FromBeginning(), MaxItems: 3, Concurrency: 1 + n%2*3,
		}))
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- p.Run(ctx) }()
	}
	for i := range 3 * lifeContacts {
		change(t, mortalStore{contacts, d}, fmt.Sprint("c", i%lifeContacts))
		if time.Sleep(10 * time.Second); i == 4 && n%10 == 0 {
			if parts, err := contacts.Partitions(t.Context()); err != nil {
				t.Error(err)
			} else if _, err := contacts.Split(t.Context(), parts[0].ID); err != nil {
				t.Error(err)
			}
		}
	}
	for left := int64(1); left > 0; time.Sleep(time.Second) {
		lags, err := changefeed.Estimate(t.Context(), contacts, store)
		if err != nil {
			t.Fatal(err)
		}
		left = 0
		for _, l := range lags {
			left += l.Pending
		}
	}
	stop()
	if err := errors.Join(<-ended, <-ended); err != nil {
		t.Error(err)
	}
}

// change makes a contact, or renames and describes it.
func change(t *testing.T, store changefeed.Committer, id string) {
	t.Helper()
	u := outbox.NewUnit(store, outbox.Options{EventTTL: -1}) // the test that reads them is in another time
	d, err := outbox.Load[*contact](t.Context(), store, id, "contact", id)
	switch {
	case errors.Is(err, changefeed.ErrNotFound):
		u.Create(docOf(id, newContact("A")))
	case err != nil:
		t.Fatal(err)
	default:
		d.Data.rename(d.Data.Name + "a")
		d.Data.describe("d")
		u.Replace(d)
	}
	if err := u.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEachEventIsPublishedWhereverItsProcessIsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	deaths := map[string]int{}
	lives := *lifeRounds*len(points) + 1
	for n := range lives {
		point, times := points[n%len(points)], n/len(points)*2+1
		if n == lives-1 {
			point = "at no point"
		}
		child := exec.Command(os.Args[0], "-test.run=^TestLife$", "-test.v", "-test.timeout=60s")
		child.Env = append(os.Environ(), lifeDir+"="+dir, fmt.Sprint(lifeNumber, "=", n+1), lifePoint+"="+point, fmt.Sprint(lifeTimes, "=", times))
		out, err := child.CombinedOutput()
		switch {
		case strings.Contains(string(out), "died "+point):
			deaths[point]++
		case err != nil || !strings.Contains(string(out), "lived on"):
			t.Fatalf("life %d: %v\n%s", n, err, out)
		}
	}
	for _, point := range points {
		if deaths[point] < min(2, *lifeRounds) {
			t.Errorf("died %s: %d of %d: the test shows less than it should", point, deaths[point], *lifeRounds)
		}
	}
	db, err := docstore.Open(dir, docstore.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	contacts, err := db.Container("contacts")
	if err != nil {
		t.Fatal(err)
	}
	topic, err := db.Container("topic")
	if err != nil {
		t.Fatal(err)
	}
	twice := 0
	for i := range lifeContacts {
		id := fmt.Sprint("c", i)
		want := stories(t, contacts, id)
		got, again := consume(t, topic, id)
		twice += again
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of %s a consumer without duplicates has seen: %s", id, diff)
		}
	}
	if twice == 0 {
		t.Error("nothing was published twice: no relay was killed between the broker's answer and the checkpoint")
	}
}

// stories are the events of an object, as they are stored.
func stories(t *testing.T, in *docstore.Container, id string) (all []string) {
	t.Helper()
	var seqs []uint64
	for _, d := range stored(t, in, id) {
		if d["type"] == outbox.EventType {
			seq := uint64(d["seq"].(float64))
			seqs = append(seqs, seq)
			all = append(all, fmt.Sprint(seq, " ", d["data"].(map[string]any)["action"], " ", d["id"]))
		}
	}
	for i, seq := range seqs {
		if seq != uint64(i+1) {
			t.Errorf("%s: events are numbered %v", id, seqs)
			break
		}
	}
	return all
}

// consume are the messages of a key in the order of the topic, without duplicates, and how many of these there were.
func consume(t *testing.T, topic *docstore.Container, key string) (seen []string, twice int) {
	t.Helper()
	for item, err := range topic.Logical(t.Context(), changefeed.Key(key), 0) {
		if err != nil {
			t.Fatal(err)
		}
		var m kept
		if err := json.Unmarshal(item.Body, &m); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(m.Seq, " ", m.Action, " ", m.Message); !slices.Contains(seen, text) {
			seen = append(seen, text)
		} else {
			twice++
		}
	}
	return seen, twice
}
