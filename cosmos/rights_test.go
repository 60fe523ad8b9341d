package cosmos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// The rights of docs/rights.md: actions by container. Each list is enough for its job. Without any of its actions the
// job fails, with an error that names the action; without items/delete it leaves records behind.

// rights are the actions of a role in each container, without the beginning of their names.
type rights map[string][]string

var (
	// readFeed are the actions in the container that a unit reads.
	readFeed = []string{"readMetadata", "readChangeFeed"}
	// ownLeases are those of a processor in its leases.
	ownLeases = []string{
		"readMetadata", "executeQuery", "readChangeFeed", "items/create", "items/replace", "items/delete",
	}
	// seeLeases are those of an estimator in the leases.
	seeLeases = []string{"readMetadata", "executeQuery"}
	// park are those of a processor in the container of its letters.
	park = []string{"readMetadata", "items/upsert"}
	// steerLeases are those of an operator, who writes requests beside the leases, and leases that nobody owns.
	steerLeases = []string{"readMetadata", "executeQuery", "items/create", "items/replace"}
	// cleanLeases are those of an operator who removes surplus.
	cleanLeases = []string{"readMetadata", "executeQuery", "items/create", "items/delete"}
)

// errLeft is the outcome without the right to delete: the job is done, and records are left behind.
var errLeft = errors.New("a record that nobody needs is left, for want of items/delete")

// job is what a role does.
type job struct {
	rights rights
	do     func(t *testing.T, s *server, client *cosmos.Client) error
}

var jobs = map[string]job{
	"processor":              {rights{"items": readFeed, "leases": ownLeases}, processAll},
	"processor with letters": {rights{"items": readFeed, "leases": ownLeases, "letters": park}, parkOne},
	"relay":                  {rights{"items": readFeed, "leases": ownLeases}, relayAll},
	"estimator":              {rights{"items": readFeed, "leases": seeLeases}, estimate},
	"operator":               {rights{"items": readFeed, "leases": steerLeases}, steer},
	"operator who cleans up": {rights{"items": {"readMetadata"}, "leases": cleanLeases}, cleanUp},
}

func TestEachRoleIsEnoughAndNoActionIsTooMany(t *testing.T) {
	for name, j := range jobs {
		t.Run(name, func(t *testing.T) {
			if err := j.run(t, j.rights); err != nil {
				t.Errorf("with all rights of the role: %v", err)
			}
			for container, actions := range j.rights {
				for _, missing := range actions {
					rest := rights{}
					for c, a := range j.rights {
						rest[c] = slices.DeleteFunc(slices.Clone(a), func(action string) bool {
							return c == container && action == missing
						})
					}
					err := j.run(t, rest)
					if err == nil {
						t.Errorf("without %s in %s nothing fails", missing, container)
						continue
					}
					if !strings.Contains(err.Error(), missing) {
						t.Errorf("without %s in %s: %v, want an error that names the action", missing, container, err)
					}
					t.Logf("without %s in %s: %v", missing, container, err)
				}
			}
		})
	}
}

// run does the job as a principal with these rights, in an account with a unit that was begun.
func (j job) run(t *testing.T, r rights) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tokens, worker := entra(t)
		var grants []cosmosrest.Grant
		for container, actions := range r {
			g := cosmosrest.Grant{Database: docstore.DefaultDatabase, Container: container}
			for _, action := range actions {
				prefix := container0
				if action == "readMetadata" {
					prefix = account0
				}
				g.Actions = append(g.Actions, prefix+action)
			}
			if len(g.Actions) > 0 {
				grants = append(grants, g)
			}
		}
		tokens.Roles = cosmosrest.Roles{"worker": grants}
		s := serve(t, cosmosrest.Options{Tokens: tokens})
		s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}, Ranges: 2})
		s.create(t, docstore.LeaseSpec("leases"))
		s.create(t, docstore.ContainerSpec{ID: "letters", Paths: []string{deadletters.KeyPath}})
		err = j.do(t, s, s.client(t, worker, nil))
	})
	return err
}

// opened opens the containers as the worker.
func opened(ctx context.Context, client *cosmos.Client) (items *cosmos.Container, leases *cosmos.Leases, err error) {
	items, err = client.Container(ctx, docstore.DefaultDatabase, "items")
	if err != nil {
		return nil, nil, err
	}
	container, err := client.Container(ctx, docstore.DefaultDatabase, "leases")
	if err != nil {
		return nil, nil, err
	}
	leases, err = cosmos.OpenLeases(ctx, container, "unit", items, cosmos.LeaseOptions{})
	return items, leases, err
}

// fill writes items of several keys.
func (s *server) fill(t *testing.T, n int, more string) {
	t.Helper()
	items, err := s.db.Container("items")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := put(t.Context(), items, fmt.Sprintf(`{"id":"%d","pk":"%d"%s}`, i, i, more)); err != nil {
			t.Fatal(err)
		}
	}
}

// work runs a processor for ten minutes, with a split after five. The error is the first one of the processor, if the
// processor has reported any.
func work(t *testing.T, s *server, client *cosmos.Client, handler feed.Handler, p changefeed.FailurePolicy) error {
	t.Helper()
	items, leases, err := opened(t.Context(), client)
	if err != nil {
		return err
	}
	if err := leases.SelfTest(t.Context(), items, feed.LatestVersion); err != nil {
		return err
	}
	var mu sync.Mutex
	var first error
	processor, err := changefeed.New(items, leases, handler, changefeed.Options{
		Instance: "a", Start: feed.FromBeginning(), OnFailure: p,
		Hooks: changefeed.Hooks{Error: func(_ context.Context, e *feed.Error) {
			mu.Lock()
			defer mu.Unlock()
			if first == nil && e.Origin != feed.OriginHandler {
				first = e
			}
		}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- processor.Run(ctx) }()
	time.Sleep(5 * time.Minute)
	stored, err := s.db.Container("items")
	if err != nil {
		return err
	}
	if _, err := stored.Split(t.Context(), "0"); err != nil {
		return err
	}
	err = <-ended
	records, _, listErr := leases.List(t.Context())
	if len(slices.DeleteFunc(records, func(r feed.Record) bool { return r.Kind != feed.KindLease })) != 3 {
		err = errors.Join(err, errLeft)
	}
	mu.Lock()
	defer mu.Unlock()
	return errors.Join(err, listErr, first)
}

// processAll handles items, before and after a split.
func processAll(t *testing.T, s *server, client *cosmos.Client) error {
	t.Helper()
	s.fill(t, 20, "")
	var handled atomic.Int64 // by the workers of two leases
	err := work(t, s, client, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		handled.Add(int64(len(b.Changes)))
		return nil
	}), changefeed.FailurePolicy{})
	if n := handled.Load(); err == nil && n != 20 {
		t.Errorf("%d items were handled, want 20", n)
	}
	return err
}

// parkOne parks an item.
func parkOne(t *testing.T, s *server, client *cosmos.Client) error {
	t.Helper()
	s.fill(t, 20, "")
	items, err := client.Container(t.Context(), docstore.DefaultDatabase, "items")
	if err != nil {
		return err
	}
	letters, err := client.Container(t.Context(), docstore.DefaultDatabase, "letters")
	if err != nil {
		return err
	}
	box, err := deadletters.Container(letters, "unit", items)
	if err != nil {
		return err
	}
	return work(t, s, client, feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		for i, c := range b.Changes {
			if c.ID == "7" {
				return &feed.Failure{Items: map[int]error{i: feed.Poison(errors.New("bad"))}}
			}
		}
		return nil
	}), changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box})
}

// sink is a broker that takes everything.
type sink struct{}

func (sink) Publish(_ context.Context, msgs []outbox.Message) (int, error) { return len(msgs), nil }

// relayAll publishes events.
func relayAll(t *testing.T, s *server, client *cosmos.Client) error {
	t.Helper()
	s.fill(t, 20, "")
	relay, err := outbox.NewRelay(sink{}, outbox.RelayOptions{})
	if err != nil {
		return err
	}
	return work(t, s, client, relay, changefeed.FailurePolicy{})
}

// begin begins the unit with an account's key, as a processor would.
func begin(t *testing.T, s *server) {
	t.Helper()
	s.fill(t, 20, "")
	nothing := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
	if err := work(t, s, s.client(t, master, nil), nothing, changefeed.FailurePolicy{}); err != nil {
		t.Fatal(err)
	}
	s.fill(t, 10, `,"more":1`)
}

// estimate measures the lag of a unit.
func estimate(t *testing.T, s *server, client *cosmos.Client) error {
	t.Helper()
	begin(t, s)
	items, leases, err := opened(t.Context(), client)
	if err != nil {
		return err
	}
	lags, err := changefeed.Estimate(t.Context(), items, leases)
	pending := int64(0)
	for _, l := range lags {
		pending += l.Pending
		err = errors.Join(err, l.Err)
	}
	if err == nil && pending != 10 {
		t.Errorf("%d changes are pending, want 10", pending)
	}
	return err
}

// steer lists, pauses, resumes, resets, and takes and restores a snapshot.
func steer(t *testing.T, s *server, client *cosmos.Client) error {
	t.Helper()
	begin(t, s)
	items, leases, err := opened(t.Context(), client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	u := admin.Open(items, leases, admin.Options{By: "operator", Reason: "a test"})
	snapshot, err := u.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { _, err := u.List(ctx); return err },
		func() error { _, err := u.Pause(ctx, admin.All()); return err },
		func() error { _, err := u.Resume(ctx, admin.All()); return err },
		func() error { _, err := u.Reset(ctx, admin.All(), feed.FromBeginning()); return err },
		func() error { _, err := u.Restore(ctx, snapshot); return err },
		func() error {
			found, err := u.Surplus(ctx)
			if err == nil {
				_, err = u.CleanUp(ctx, found)
			}
			return err
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp removes the presence of an instance that was killed long ago.
func cleanUp(t *testing.T, s *server, client *cosmos.Client) error {
	t.Helper()
	begin(t, s)
	records, err := s.db.Container("leases")
	if err != nil {
		return err
	}
	prefix := unit(t, s.client(t, master, nil), "unit").Prefix()
	if err := put(t.Context(), records, fmt.Sprintf(`{"id":"%s.host.b","Owner":"b","properties":{"changefeed.epoch":"b/1"}}`,
		prefix)); err != nil {
		return err
	}
	time.Sleep(24 * time.Hour)
	items, leases, err := opened(t.Context(), client)
	if err != nil {
		return err
	}
	u := admin.Open(items, leases, admin.Options{By: "operator", Reason: "a test"})
	found, err := u.Surplus(t.Context())
	if err != nil {
		return err
	}
	if len(found) != 1 {
		t.Errorf("found %+v, want the presence of b", found)
	}
	removed, err := u.CleanUp(t.Context(), found)
	if err == nil && (len(removed) != 1 || !removed[0].Done) {
		return errLeft
	}
	return err
}
