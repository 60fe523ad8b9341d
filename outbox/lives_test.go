package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/lives"
	"github.com/millrace/changefeed/outbox"
)

// How an outbox is killed at every point
//
// A life commits units of work and publishes their events with two relays, until it ends between two steps of that. At
// the end each event must have been published, those of an object in order, and a consumer that drops duplicates must
// have seen each once.
//
// The broker is a container of the same store that keeps whatever it gets; NATS and the others, which have goroutines
// of their own, are tried in real time.

// points are where lives end.
var points = []string{
	"before a commit", "after a commit", "before a publish", "between two messages", "after a publish",
	"before a checkpoint", "after a checkpoint",
}

const lifeContacts = 5

// mortalStore is where units of work are committed.
type mortalStore struct {
	*docstore.Container
	*lives.Death
}

func (s mortalStore) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	if writes[0].Op != feed.WriteRead {
		s.At("before a commit")
		defer s.At("after a commit")
	}
	return s.Container.Commit(ctx, key, writes)
}

// mortalLeases are where the relays keep their positions.
type mortalLeases struct {
	*docstore.Leases
	*lives.Death
}

func (s mortalLeases) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	s.At("before a checkpoint")
	defer s.At("after a checkpoint")
	return s.Leases.Update(ctx, l)
}

// mortalTopic is a broker that keeps all that it gets, duplicates as well.
type mortalTopic struct {
	*docstore.Container
	*lives.Death
	life int
	n    *atomic.Int64
}

// kept is a message as the topic has it.
type kept struct {
	ID, Key, Message, Action string
	Seq                      uint64
}

func (s mortalTopic) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	s.At("before a publish")
	for i, m := range msgs {
		body, err := json.Marshal(map[string]any{
			"id": fmt.Sprintf("%d-%d", s.life, s.n.Add(1)), "Key": m.Key,
			"Message": m.ID, "Action": m.Action, "Seq": m.Seq,
		})
		if err != nil {
			return i, err
		}
		if _, err := s.Create(ctx, body); err != nil {
			return i, err
		}
		if i+1 < len(msgs) {
			s.At("between two messages")
		}
	}
	s.At("after a publish")
	return len(msgs), nil
}

func TestLife(t *testing.T) { lives.Live(t, live) }

// live commits changes of contacts while two relays publish the events, until nothing is left.
func live(t *testing.T, l lives.Life) {
	contacts := l.Container(t, docstore.ContainerSpec{
		ID: "contacts", Paths: []string{"/partitionKey"},
		DefaultTTL: new(docstore.NoDefaultTTL), Ranges: 2,
	})
	topic := mortalTopic{
		l.Container(t, docstore.ContainerSpec{ID: "topic", Paths: []string{"/Key"}}), l.Death,
		l.Number, new(atomic.Int64),
	}
	store, err := docstore.NewLeases(t.Context(), l.Container(t, docstore.LeaseSpec("leases")), "relay", contacts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	for i := range 2 {
		r := newRelay(t, topic, outbox.RelayOptions{})
		p, err := changefeed.New(contacts, mortalLeases{store, l.Death}, r, changefeed.Options{
			Instance: fmt.Sprint("relay", i), Start: feed.FromBeginning(), MaxItems: 3, Concurrency: 1 + l.Number%2*3,
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- p.Run(ctx) }()
	}
	for i := range 3 * lifeContacts {
		change(t, mortalStore{contacts, l.Death}, fmt.Sprint("c", i%lifeContacts))
		if time.Sleep(10 * time.Second); i == 4 && l.Number%10 == 0 {
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
func change(t *testing.T, store feed.Committer, id string) {
	t.Helper()
	u := outbox.NewUnit(store, outbox.Options{EventTTL: -1}) // the test that reads them is in another time
	d, err := outbox.Load[*contact](t.Context(), store, id, "contact", id)
	switch {
	case errors.Is(err, feed.ErrNotFound):
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
	db, _ := lives.Kill(t, points, func(round int) int { return 2*round + 1 })
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
	for item, err := range topic.Logical(t.Context(), feed.Key(key), 0) {
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
