package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/examples/recipes/internal/fleettest"
	"github.com/millrace/changefeed/feed"
)

const (
	kills  = 21
	before = 100 // items that exist before the unit does
)

type product struct {
	N   int `json:"n"` // grows with each write, so that an older value shows
	TTL int `json:"ttl"`
}

// truth is what the writer has written: items are created, replaced, deleted, and some expire.
type truth struct {
	container *docstore.Container
	items     map[string]product
	writes    int
}

func (w *truth) write(ctx context.Context) error {
	n := rand.IntN(2 * before)
	id := fmt.Sprint(n)
	w.writes++
	p := product{N: w.writes, TTL: []int{-1, -1, 3600, 2}[n%4]}
	body := fmt.Appendf(nil, `{"id":%q,"n":%d,"ttl":%d}`, id, p.N, p.TTL)
	writes := []feed.Write{{Body: body}}
	w.items[id] = p
	if rand.IntN(3) == 0 { // in the same transaction, with the same LSN
		writes = append(writes, feed.Write{Op: feed.WriteDelete, ID: id})
		delete(w.items, id)
	}
	_, err := w.container.Commit(ctx, feed.Key(id), writes)
	return err
}

// check compares Redis with the truth. Products with a time to live of two seconds must have gone.
func (w *truth) check(ctx context.Context, client *redis.Client) error {
	names, err := client.Keys(ctx, "product:*").Result()
	if err != nil {
		return err
	}
	found := 0
	for _, name := range names {
		if strings.HasSuffix(name, ":lsn") {
			continue
		}
		found++
		id := name[strings.LastIndex(name, "/")+1 : len(name)-1]
		var got product
		text, err := client.Get(ctx, name).Bytes()
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		want, live := w.items[id]
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case got != want || !live || want.TTL == 2:
			return fmt.Errorf("%s is %v, and should be %v (live: %t)", name, got, want, live)
		}
		left, err := client.TTL(ctx, name).Result()
		if want.TTL == 3600 && (left > time.Hour || left < 50*time.Minute) || want.TTL < 0 && left > 0 || err != nil {
			return fmt.Errorf("%s with ttl %d expires in %v, %w", name, want.TTL, left, err)
		}
	}
	should := 0
	for _, p := range w.items {
		if p.TTL != 2 {
			should++
		}
	}
	if found != should {
		return fmt.Errorf("%d items in Redis, and %d should be", found, should)
	}
	return nil
}

// startRedis starts a Redis server or, without the program redis-server, a server in this process.
func startRedis(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Log("no redis-server in the PATH: the test uses miniredis")
		return miniredis.RunT(t).Addr()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return address
}

// watch reads values again and again, and reports a value that is older than one that was read before.
func watch(ctx context.Context, client *redis.Client) error {
	newest := map[string]int{}
	for ctx.Err() == nil {
		id := fmt.Sprint(rand.IntN(2 * before))
		time.Sleep(time.Millisecond)
		text, err := client.Get(ctx, fmt.Sprintf("product:{[%q]/%s}", id, id)).Bytes()
		if err != nil {
			continue // missing, or the end
		}
		var got product
		if err := json.Unmarshal(text, &got); err != nil {
			return err
		}
		if got.N < newest[id] {
			return fmt.Errorf("product %s went back from %d to %d", id, newest[id], got.N)
		}
		newest[id] = got.N
	}
	if len(newest) < before {
		return fmt.Errorf("read %d products only", len(newest))
	}
	return nil
}

func TestMain(m *testing.M) { fleettest.RunAs(m, main) }

func TestRedisIsRightAlthoughProcessesAreKilled(t *testing.T) {
	server := fleettest.StartAccount(t, docstore.ContainerSpec{
		ID: "products", Paths: []string{"/id"}, Ranges: 4, DefaultTTL: new(-1), Retention: time.Hour,
	})
	products, err := server.DB.Container("shop/products")
	if err != nil {
		t.Fatal(err)
	}
	w := &truth{container: products, items: map[string]product{}}
	for range before {
		if err := w.write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	address := startRedis(t)
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	all := fleettest.Against(server, "shop/products", t.TempDir(), "-redis", address)
	ctx, stop := context.WithCancel(t.Context())
	var back error
	var watching sync.WaitGroup
	watching.Go(func() { back = watch(ctx, client) })
	all.KillMany(t, kills, w.write, func(kill int) {
		switch kill {
		case kills / 3:
			all.Freeze(t)
		case kills / 2:
			fleettest.Split(t, products)
		}
	})
	all.Eventually(t, func() error { return w.check(t.Context(), client) })
	stop()
	watching.Wait()
	if back != nil {
		t.Error(back)
	}
	all.Stop(t)
	if err := w.check(t.Context(), client); err != nil {
		t.Error("after the stop:", err)
	}
	t.Logf("%d writes, %d kills", w.writes, kills)
}

func TestItRunsOnALocalStore(t *testing.T) {
	if said := fleettest.RunLocally(t, t.TempDir(), "-redis", startRedis(t)); !strings.Contains(said, "changes of") {
		t.Error(said)
	}
}

func TestAnOlderVersionReplacesNothing(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: startRedis(t)})
	defer client.Close()
	c, key := cache{client}, feed.Key("7")
	version := func(lsn int64, op feed.Op, body string) feed.Change {
		return feed.Change{Op: op, ID: "7", PartitionKey: key, LSN: lsn, Time: time.Now(), Body: []byte(body)}
	}
	for _, step := range []struct {
		changes []feed.Change
		want    string
	}{
		{[]feed.Change{version(5, feed.OpCreate, `{"n":5}`)}, `{"n":5}`},
		{[]feed.Change{version(4, feed.OpReplace, `{"n":4}`)}, `{"n":5}`},
		{[]feed.Change{version(4, feed.OpDelete, "")}, `{"n":5}`},
		{[]feed.Change{version(6, feed.OpReplace, `{"n":6,"ttl":100}`)}, `{"n":6,"ttl":100}`},
		{[]feed.Change{version(7, feed.OpReplace, `{"n":7}`), version(7, feed.OpReplace, `{"n":8}`)}, `{"n":8}`},
		{[]feed.Change{version(9, feed.OpDelete, "")}, ""},
		{[]feed.Change{version(8, feed.OpReplace, `{"n":9}`)}, ""},
		{[]feed.Change{version(10, feed.OpCreate, `{"n":10}`)}, `{"n":10}`},
	} {
		fleettest.Eventually(t, func() error { return c.handle(t.Context(), &feed.Batch{Changes: step.changes}) })
		got, err := client.Get(t.Context(), `product:{["7"]/7}`).Result()
		if got != step.want || err != nil && step.want != "" {
			t.Errorf("after LSN %d: %q, %v; should be %q", step.changes[0].LSN, got, err, step.want)
		}
	}
}

func TestRedisHasTheLocalStoreAfterKills(t *testing.T) {
	address := startRedis(t)
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	all, db := fleettest.KillLocally(t, t.TempDir(), "cache-data", "shop/products", []string{"-redis", address})
	products, err := db.Container("shop/products")
	if err != nil {
		t.Fatal(err)
	}
	all.Eventually(t, func() error {
		found := 0
		for it, err := range products.Items(t.Context(), feed.FullRange(), "") {
			if err != nil {
				return err
			}
			name := fmt.Sprintf("product:{%s/%s}", feed.Key(it.ID), it.ID)
			if got, err := client.Get(t.Context(), name).Result(); got != string(it.Body) {
				return fmt.Errorf("%s is %q, %w; the store has %s", name, got, err, it.Body)
			}
			found++
		}
		names, err := client.Keys(t.Context(), "product:*}").Result()
		if err == nil && len(names) != found {
			err = fmt.Errorf("%d items in Redis, and %d in the store: %v", len(names), found, names)
		}
		return err
	})
	all.Stop(t)
}
