package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// expired waits until only so many products are left.
func (s *shop) expired(left int) {
	s.Helper()
	fleettest.Eventually(s.T, func() error {
		if n := s.products.Count(); n != int64(left) {
			return fmt.Errorf("there are %d products, want %d", n, left)
		}
		return nil
	})
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
	f := fleettest.Against(s.Server, "shop/products", dir, "-data", ".", "-every", "0")
	f.Start(t)
	s.handled("soft", "all")
	n := 0
	f.KillMany(t, kills, func(context.Context) error {
		s.put(n, 1, "")
		if old := n - 40; old >= 0 {
			s.end(old)
		}
		n++
		return nil
	}, func(int) {})
	s.expired(n - 2*((n-40)/4) - max(0, (n-40)%4-1))
	s.handled("soft", "all")
	f.Stop(t)
	s.compare(dir)
}

// The same without a server: a process that writes products and ends them is killed on its local store.
func TestTheTargetsHaveTheLocalStoreAfterKills(t *testing.T) {
	dir := t.TempDir()
	f, db := fleettest.KillLocally(t, dir, "softdelete-store", "shop/products", []string{"-data", ".", "-every", "5ms"},
		"-every", "0")
	products, err := db.Container("shop/products")
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{Server: &cosmostest.Server{DB: db}, T: t, products: products}
	f.Eventually(t, func() error {
		for file, body := range s.stored() {
			if strings.Contains(body, `"ttl":2`) {
				return fmt.Errorf("%s has not expired", file)
			}
		}
		return nil
	})
	s.handled("soft", "all")
	f.Stop(t)
	s.compare(dir)
}

// stored reads the products by the names of their files.
func (s *shop) stored() map[string]string {
	s.Helper()
	all := map[string]string{}
	for it, err := range s.products.Items(s.Context(), feed.FullRange(), "") {
		if err != nil {
			s.Fatal(err)
		}
		all[url.PathEscape(string(it.Key)+it.ID)] = string(it.Body)
	}
	return all
}

// files reads the products in a target.
func (s *shop) files(dir, unit string) map[string]string {
	s.Helper()
	all := map[string]string{}
	names, err := os.ReadDir(filepath.Join(dir, unit))
	if err != nil {
		s.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, unit, name.Name()))
		if err != nil {
			s.Fatal(err)
		}
		if !strings.HasSuffix(name.Name(), ".new") { // written when its process was killed
			all[name.Name()] = string(text)
		}
	}
	return all
}

// compare compares the targets with the products.
func (s *shop) compare(dir string) {
	s.Helper()
	stored, soft, all := s.stored(), s.files(dir, "soft"), s.files(dir, "all")
	left := map[string]product{}
	for file, body := range stored {
		is := s.product(body)
		if is.Deleted {
			if _, isThere := soft[file]; isThere {
				s.Errorf("%s has a marker, and is in the target of soft", file)
			}
			continue
		}
		left[file] = is
		if s.product(soft[file]) != is {
			s.Errorf("%s is %s; soft has %q", file, body, soft[file])
		}
	}
	got := map[string]product{}
	for file, body := range all {
		got[file] = s.product(body)
	}
	if !maps.Equal(got, left) || len(left) == 0 {
		s.Errorf("all has %d products, which differ from the %d that are left", len(got), len(left))
	}
	missed := 0
	for file := range soft {
		if _, isStored := stored[file]; !isStored {
			missed++
		}
	}
	s.Logf("%d products are left; latest versions have missed %d deletes and expiries", len(left), missed)
}

// product is what distinguishes versions of a product.
type product struct {
	Version, Price int
	Sold, Deleted  bool
}

func (s *shop) product(body string) (p product) {
	s.Helper()
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		s.Errorf("a product is %q: %v", body, err)
	}
	return p
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

// A marker that expires while no process works is never seen, nor is a delete without a marker: the limits of soft
// deletes. All versions and deletes have each delete.
func TestAMarkerMustOutliveAnOutage(t *testing.T) {
	s, dir := newShop(t), t.TempDir()
	f := fleettest.Against(s.Server, "shop/products", dir, "-data", ".", "-every", "0")
	f.Start(t)
	s.handled("soft", "all")
	s.put(1, 1, "")
	s.put(2, 1, "")
	s.put(3, 1, "")
	s.handled("soft", "all")
	s.drop(3)
	f.Stop(t)
	s.put(1, 2, `,"deleted":true,"ttl":1`)
	s.put(2, 2, `,"deleted":true,"ttl":3600`)
	s.expired(1)
	f.Start(t)
	s.handled("soft", "all")
	f.Stop(t)
	for unit, want := range map[string][3]bool{"soft": {true, false, true}, "all": {}} {
		got := [3]bool{s.has(dir, unit, 1) != "", s.has(dir, unit, 2) != "", s.has(dir, unit, 3) != ""}
		if got != want {
			t.Errorf("%s has the products %v, want %v", unit, got, want)
		}
	}
}
