package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/examples/recipes/internal/fleettest"
	"github.com/millrace/changefeed/feed"
)

const kills = 20

func TestMain(m *testing.M) { fleettest.RunAs(m, main) }

// shop is an account with products.
type shop struct {
	*cosmostest.Server
	*testing.T
	products *docstore.Container
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{Server: cosmostest.NewTestServer(t), T: t}
	if _, err := s.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.products, err = s.DB.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "shop", ID: "products", Paths: []string{"/shelf"}, Ranges: 4,
		DefaultTTL: new(docstore.NoDefaultTTL), Retention: time.Hour,
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// put writes a version of a product; more are its other members.
func (s *shop) put(n, version int, more string) {
	s.Helper()
	if _, err := s.products.Upsert(context.Background(), fmt.Appendf(nil, `{"id":"%d","shelf":"s%d","version":%d%s}`, n,
		n%8, version, more)); err != nil {
		s.Error(err)
	}
}

// drop deletes a product.
func (s *shop) drop(n int) {
	s.Helper()
	if err := s.products.Delete(context.Background(), shelf(n), fmt.Sprint(n), ""); err != nil {
		s.Error(err)
	}
}

func shelf(n int) feed.PartitionKey { return feed.Key(fmt.Sprint("s", n%8)) }

// handled waits until both units have handled what is there.
func (s *shop) handled(units ...string) {
	s.Helper()
	ctx, stop := context.WithTimeout(s.Context(), 30*time.Second)
	defer stop()
	for _, unit := range units {
		for {
			container, err := s.DB.Container("shop/leases")
			if err == nil {
				leases, newErr := docstore.NewLeases(ctx, container, unit, s.products)
				err = errors.Join(newErr, changefeed.CaughtUp(ctx, s.products, leases))
			}
			if err == nil {
				break
			}
			if !errors.Is(err, feed.ErrNotFound) { // until a process has made the leases
				s.Fatalf("%s: %v", unit, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// has reads the product in a target, or returns "".
func (s *shop) has(dir, unit string, n int) string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(dir, unit, url.PathEscape(fmt.Sprint(shelf(n), n))))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Error(err)
	}
	if err == nil && len(text) == 0 {
		return "an empty file"
	}
	return string(text)
}

// Products end in three ways while processes are killed. The unit of all versions and deletes has exactly the products
// that are left; the unit of latest versions has those without a marker, and misses deletes and expiries.
func TestTheTargetsHaveWhatIsLeft(t *testing.T) {
	s, dir := newShop(t), t.TempDir()
	f := fleettest.StartPair(t, 1500, "-from", s.URL+"/shop/products", "-data", dir, "-every", "0", "-expiration", "2s")
	s.handled("soft", "all")
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			s.put(n, 1, "")
			if old := n - 40; old >= 0 {
				s.end(old)
			}
			time.Sleep(3 * time.Millisecond)
		}
		written <- n
	}()
	for range kills {
		f.Kill()
	}
	stop()
	n := <-written
	fleettest.Until(t, "expired", func() bool { return s.products.Count() == int64(n-2*((n-40)/4)-max(0, (n-40)%4-1)) })
	s.handled("soft", "all")
	f.Stop()
	missed := 0
	for i := range n {
		stored, err := s.products.Item(t.Context(), shelf(i), fmt.Sprint(i))
		isStored := err == nil
		soft, all := s.has(dir, "soft", i), s.has(dir, "all", i)
		isMarked := isStored && strings.Contains(string(stored.Body), `"deleted":true`)
		isLeft := isStored && !isMarked
		if (all != "") != isLeft || isLeft && version(all) != version(string(stored.Body)) {
			t.Errorf("product %d is %s; all has %q", i, stored.Body, all)
		}
		if isMarked && soft != "" || isLeft && version(soft) != version(string(stored.Body)) {
			t.Errorf("product %d is %s; soft has %q", i, stored.Body, soft)
		}
		if !isStored && soft != "" {
			missed++
		}
	}
	t.Logf("%d products; latest versions have missed %d deletes and expiries", n, missed)
}

// end ends a product as its number says.
func (s *shop) end(n int) {
	s.Helper()
	switch n % 4 {
	case 0:
		s.put(n, 2, `,"deleted":true,"ttl":3600`)
	case 1:
		s.drop(n)
	case 2:
		s.put(n, 2, `,"ttl":1`)
	default:
		s.put(n, 2, "")
	}
}

func version(body string) string {
	_, after, _ := strings.Cut(body, `"version":`)
	return after[:min(1, len(after))]
}

// A marker that expires while no process works is never seen, nor is a delete without a marker: the limits of soft
// deletes. All versions and deletes have each delete.
func TestAMarkerMustOutliveAnOutage(t *testing.T) {
	s, dir := newShop(t), t.TempDir()
	f := fleettest.StartPair(t, 1500, "-from", s.URL+"/shop/products", "-data", dir, "-every", "0", "-expiration", "2s")
	s.handled("soft", "all")
	s.put(1, 1, "")
	s.put(2, 1, "")
	s.put(3, 1, "")
	s.handled("soft", "all")
	s.drop(3)
	f.Stop()
	s.put(1, 2, `,"deleted":true,"ttl":1`)
	s.put(2, 2, `,"deleted":true,"ttl":3600`)
	fleettest.Until(t, "expired", func() bool { return s.products.Count() == 1 })
	f.Start()
	s.handled("soft", "all")
	f.Stop()
	for unit, want := range map[string][3]bool{"soft": {true, false, true}, "all": {}} {
		got := [3]bool{s.has(dir, unit, 1) != "", s.has(dir, unit, 2) != "", s.has(dir, unit, 3) != ""}
		if got != want {
			t.Errorf("%s has the products %v, want %v", unit, got, want)
		}
	}
}
