package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// shop is an account with orders, and what was written there.
type shop struct {
	*cosmostest.Server
	t        *testing.T
	orders   *docstore.Container
	mu       sync.Mutex
	mailed   []string // in the order of the writes
	unmailed []string // without an address
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{Server: cosmostest.NewTestServer(t), t: t}
	if _, err := s.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	spec := docstore.ContainerSpec{Database: "shop", ID: "orders", Paths: []string{"/city"}, Ranges: 4}
	var err error
	if s.orders, err = s.DB.CreateContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return s
}

// write writes orders of eight cities until ctx ends.
func (s *shop) write(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		city, mail := fmt.Sprint("city", n%8), "a@b"
		if n%20 == 0 {
			mail = ""
		}
		if _, err := s.orders.Upsert(context.Background(), fmt.Appendf(nil, `{"id":"%d","city":%q,"mail":%q}`, n, city,
			mail)); err != nil {
			s.t.Error(err)
		}
		s.mu.Lock()
		if mail == "" {
			s.unmailed = append(s.unmailed, fmt.Sprint(city, " ", n))
		} else {
			s.mailed = append(s.mailed, fmt.Sprint(city, " ", n))
		}
		s.mu.Unlock()
		time.Sleep(4 * time.Millisecond)
	}
}

// leases returns the leases of a unit.
func (s *shop) leases(unit string) *docstore.Leases {
	s.t.Helper()
	container, err := s.DB.Container("shop/leases")
	if err != nil {
		s.t.Fatal(err)
	}
	leases, err := docstore.NewLeases(s.t.Context(), container, unit, s.orders)
	if err != nil {
		s.t.Fatal(err)
	}
	return leases
}

// caughtUp waits until a unit has handled what is there.
func (s *shop) caughtUp(unit string) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer stop()
	if err := changefeed.CaughtUp(ctx, s.orders, s.leases(unit)); err != nil {
		s.t.Fatalf("%s: %v", unit, err)
	}
}

// Processes are killed while one unit fails and another is paused. The third unit goes on, and in the end each unit has
// handled each order.
func TestEachUnitGoesOnByItself(t *testing.T) {
	s, dir := newShop(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "stock.down"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, "-from", s.URL+"/shop/orders", "-data", dir, "-every", "0", "-expiration", "2s")
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { s.write(ctx) })
	for range kills / 4 {
		f.kill(dir, "mailer")
	}
	audit := admin.Open(s.orders, s.leases("audit"), admin.Options{By: "test", Reason: "the audit moves"})
	if _, err := audit.Pause(t.Context(), admin.All()); err != nil {
		t.Fatal(err)
	}
	before := size(t, dir, "audit")
	for range kills / 4 {
		f.kill(dir, "mailer")
	}
	s.caughtUp("mailer")
	if lines, _ := handled(t, dir, "stock"); len(lines) > 0 {
		t.Errorf("stock has handled %d orders while its system is down", len(lines))
	}
	if now := size(t, dir, "audit"); now != before {
		t.Errorf("audit has written %d bytes while it was paused", now-before)
	}
	if _, err := audit.Resume(t.Context(), admin.All()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "stock.down")); err != nil {
		t.Fatal(err)
	}
	for i := range kills / 2 {
		f.kill(dir, []string{"stock", "audit"}[i%2])
	}
	stop()
	writing.Wait()
	for _, unit := range []string{"mailer", "audit", "stock"} {
		s.caughtUp(unit)
	}
	f.stop()
	all := slices.Concat(s.mailed, s.unmailed)
	s.compare(dir, "mailer", s.mailed)
	s.compare(dir, "audit", all)
	s.compare(dir, "stock", all)
	s.compareLetters()
}

// compare compares what a unit has handled with the truth: each order, and those of a city in the order of the writes.
func (s *shop) compare(dir, unit string, want []string) {
	s.t.Helper()
	got, again := handled(s.t, dir, unit)
	s.t.Logf("%s: %d orders, %d came again", unit, len(got), again)
	number := func(line string) (n int) {
		fmt.Sscan(line[strings.Index(line, " "):], &n)
		return n
	}
	order := func(a, b string) int { return number(a) - number(b) }
	last := map[string]int{}
	for _, line := range got {
		city, _, _ := strings.Cut(line, " ")
		if number(line) < last[city] {
			s.t.Errorf("%s: order %s came after order %d", unit, line, last[city])
		}
		last[city] = number(line)
	}
	if got, want := slices.SortedFunc(slices.Values(got), order), slices.SortedFunc(slices.Values(want),
		order); !slices.Equal(got, want) {
		s.t.Errorf("%s: %d orders were handled, want %d", unit, len(got), len(want))
	}
}

// compareLetters compares the letters with the orders without an address.
func (s *shop) compareLetters() {
	s.t.Helper()
	container, err := s.DB.Container("shop/letters")
	if err != nil {
		s.t.Fatal(err)
	}
	box, err := deadletters.Container(container, "mailer", s.orders)
	if err != nil {
		s.t.Fatal(err)
	}
	parked := map[string]bool{}
	for l, err := range box.Letters(s.t.Context(), "") {
		if err != nil {
			s.t.Fatal(err)
		}
		parked[fmt.Sprint(l.Change.PartitionKey, " ", l.Change.ID)] = true
	}
	for _, line := range s.unmailed {
		city, id, _ := strings.Cut(line, " ")
		if !parked[fmt.Sprint(feed.Key(city), " ", id)] {
			s.t.Errorf("order %s has no address and no letter", line)
		}
	}
	if len(parked) != len(s.unmailed) {
		s.t.Errorf("%d orders are parked, want %d", len(parked), len(s.unmailed))
	}
}
