package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
)

// parcel is an object of the service. Its methods record what happens to it.
type parcel struct {
	outbox.Recorder
	To string `json:"to"`
	At string `json:"at"`
}

type parcelPosted struct {
	To string `json:"to"`
}

type parcelMoved struct {
	At string `json:"at"`
}

func (parcelPosted) EventName() string { return "ParcelPosted" }
func (parcelMoved) EventName() string  { return "ParcelMoved" }

func postParcel(to string) *parcel {
	p := &parcel{To: to}
	p.RecordCreated(parcelPosted{to})
	return p
}

func (p *parcel) move(to string) {
	p.At = to
	p.Record(parcelMoved{to})
}

// parcels is the service: each request is a unit of work.
type parcels struct{ store *docstore.Container }

func (s parcels) post(ctx context.Context, id, to string) error {
	u := outbox.NewUnit(s.store, outbox.Options{})
	u.Create(&outbox.Doc[*parcel]{ID: id, PartitionKey: id, Type: "parcel", Data: postParcel(to)})
	return commit(ctx, u)
}

// commit settles an outcome that is unknown, because the store has not answered.
func commit(ctx context.Context, u *outbox.Unit) error {
	err := u.Commit(ctx)
	if errors.Is(err, outbox.ErrUnknown) {
		err = u.Settle(ctx)
	}
	return err
}

func (s parcels) move(ctx context.Context, id, to string) error {
	d, err := outbox.Load[*parcel](ctx, s.store, id, "parcel", id)
	if err != nil {
		return err
	}
	d.Data.move(to)
	u := outbox.NewUnit(s.store, outbox.Options{})
	u.Replace(d)
	return commit(ctx, u) // feed.ErrPrecondition: somebody else was faster
}

// relay publishes the events of the service until ctx ends. Several processes may run one.
func relay(ctx context.Context, from *docstore.Container, leases feed.LeaseStore, to outbox.Publisher) error {
	r, err := outbox.NewRelay(to, outbox.RelayOptions{Source: "/parcels"})
	if err != nil {
		return err
	}
	p, err := changefeed.New(from, leases, r, changefeed.Options{})
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// tracking is another service, which consumes the events: it has a document for each parcel, of all that has happened.
type tracking struct{ store *docstore.Container }

type track struct {
	Events []string `json:"events"`
}

// handle has the effect of an event once, however often the event comes.
func (s tracking) handle(ctx context.Context, m outbox.Message) error {
	d, err := outbox.Load[*track](ctx, s.store, m.Key, "track", m.Key)
	u := outbox.NewUnit(s.store, outbox.Options{})
	switch {
	case errors.Is(err, feed.ErrNotFound):
		d = &outbox.Doc[*track]{ID: m.Key, PartitionKey: m.Key, Type: "track", Data: &track{}}
		u.Create(d)
	case err != nil:
		return err
	default:
		u.Replace(d)
	}
	d.Data.Events = append(d.Data.Events, fmt.Sprintf("%s %s", m.Action, m.Data))
	u.Once(m.Key, m.ID, 0)
	if err := commit(ctx, u); !errors.Is(err, outbox.ErrDuplicate) {
		return err
	}
	fmt.Println("again", m.Seq, m.Action)
	return nil
}

// consume handles so many events, each of which it acknowledges when its effect is stored.
func (s tracking) consume(ctx context.Context, from *natspub.Publisher, count int) error {
	js, err := jetstream.New(from.Conn())
	if err != nil {
		return err
	}
	durable, err := js.CreateOrUpdateConsumer(ctx, natspub.DefaultStream, jetstream.ConsumerConfig{
		Durable: "tracking", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1, // so they stay in order
	})
	if err != nil {
		return err
	}
	read, err := durable.Messages()
	if err != nil {
		return err
	}
	defer read.Stop()
	for range count {
		msg, err := read.Next()
		if err != nil {
			return err
		}
		m, err := natspub.Message(msg.Headers(), msg.Data())
		if err != nil {
			return err
		}
		fmt.Println(m.Key, m.Seq, m.Action)
		for range 2 { // as if the first acknowledgement had been lost
			if err := s.handle(ctx, m); err != nil {
				return err
			}
		}
		if err := msg.Ack(); err != nil {
			return err
		}
	}
	return nil
}

// A service commits parcels and their events, a relay publishes the events, and another service consumes them. All of
// it is in one process here, on an embedded store and an embedded broker; with packages cosmos and natspub the same
// code runs in several, on Azure Cosmos DB and a NATS server.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "parcels")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := docstore.Open(filepath.Join(dir, "store"), docstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	container := func(spec docstore.ContainerSpec) *docstore.Container {
		c, err := db.CreateContainer(ctx, spec)
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	of := func(name string) docstore.ContainerSpec { // events expire, objects do not
		return docstore.ContainerSpec{
			ID: name, Paths: []string{"/partitionKey"},
			DefaultTTL: new(docstore.NoDefaultTTL),
		}
	}
	service, other := parcels{container(of("parcels"))}, tracking{container(of("tracking"))}
	leases, err := docstore.NewLeases(ctx, container(docstore.LeaseSpec("leases")), "parcel-events", service.store)
	if err != nil {
		log.Fatal(err)
	}
	broker, err := natspub.Embedded(ctx, filepath.Join(dir, "nats"), natspub.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	var running sync.WaitGroup
	running.Go(func() {
		if err := relay(ctx, service.store, leases, broker); err != nil {
			log.Fatal(err)
		}
	})
	if err := service.post(ctx, "p1", "Oslo"); err != nil {
		log.Fatal(err)
	}
	if err := service.move(ctx, "p1", "Malmö"); err != nil {
		log.Fatal(err)
	}
	if err := other.consume(ctx, broker, 2); err != nil {
		log.Fatal(err)
	}
	stop()
	running.Wait()

	d, err := outbox.Load[*track](context.Background(), other.store, "p1", "track", "p1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(d.Data.Events), "events of p1 are tracked")
	// Output:
	// p1 1 ParcelPosted
	// again 1 ParcelPosted
	// p1 2 ParcelMoved
	// again 2 ParcelMoved
	// 2 events of p1 are tracked
}
