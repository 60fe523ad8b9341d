package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/examples/recipes/internal/fleettest"
	"github.com/millrace/changefeed/feed"
)

const kills = 20

func TestMain(m *testing.M) { fleettest.RunAs(m, main) }

// shop is an account with orders, and what was written there.
type shop struct {
	*cosmostest.Server
	t        *testing.T
	orders   *docstore.Container
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

// write writes an order of one of eight cities. Each twentieth order has no address.
func (s *shop) write(ctx context.Context) error {
	n := len(s.mailed) + len(s.unmailed)
	city, mail := fmt.Sprint("city", n%8), "a@b"
	if n%20 == 0 {
		mail = ""
	}
	_, err := s.orders.Upsert(ctx, fmt.Appendf(nil, `{"id":"%d","city":%q,"mail":%q}`, n, city, mail))
	if mail == "" {
		s.unmailed = append(s.unmailed, fmt.Sprint(city, " ", n))
	} else {
		s.mailed = append(s.mailed, fmt.Sprint(city, " ", n))
	}
	return err
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
	f := fleettest.Against(s.Server, "shop/orders", dir, "-data", ".", "-every", "0")
	nothing := func(int) {}
	f.KillMany(t, kills/4, s.write, nothing)
	audit := admin.Open(s.orders, s.leases("audit"), admin.Options{By: "test", Reason: "the audit moves"})
	if _, err := audit.Pause(t.Context(), admin.All()); err != nil {
		t.Fatal(err)
	}
	before, _ := handled(t, dir, "audit")
	f.KillMany(t, kills/4, s.write, nothing)
	s.caughtUp("mailer")
	if lines, _ := handled(t, dir, "stock"); len(lines) > 0 {
		t.Errorf("stock has handled %d orders while its system is down", len(lines))
	}
	if now, _ := handled(t, dir, "audit"); len(now) != len(before) {
		t.Errorf("audit has handled %d orders while it was paused", len(now)-len(before))
	}
	if _, err := audit.Resume(t.Context(), admin.All()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "stock.down")); err != nil {
		t.Fatal(err)
	}
	f.KillMany(t, kills/2, s.write, nothing)
	for _, unit := range []string{"mailer", "audit", "stock"} {
		s.caughtUp(unit)
	}
	f.Stop(t)
	s.compareAll(dir)
}

// The same without a server, and with units that only work: a process that writes orders is killed on its local store.
func TestEachUnitHasTheLocalStoreAfterKills(t *testing.T) {
	dir := t.TempDir()
	f, db := fleettest.KillLocally(t, dir, "fanout-store", "shop/orders", []string{"-data", ".", "-every", "5ms"},
		"-every", "0")
	orders, err := db.Container("shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{Server: &cosmostest.Server{DB: db}, t: t, orders: orders}
	for it, err := range orders.Items(t.Context(), feed.FullRange(), "") {
		var o order
		if err := errors.Join(err, json.Unmarshal(it.Body, &o)); err != nil {
			t.Fatal(err)
		}
		if o.Mail == "" {
			s.unmailed = append(s.unmailed, o.City+" "+o.ID)
		} else {
			s.mailed = append(s.mailed, o.City+" "+o.ID)
		}
	}
	for _, unit := range []string{"mailer", "audit", "stock"} {
		s.caughtUp(unit)
	}
	f.Stop(t)
	s.compareAll(dir)
}

// compareAll compares the output of all units with the truth.
func (s *shop) compareAll(dir string) {
	s.t.Helper()
	all := slices.Concat(s.mailed, s.unmailed)
	s.compare(dir, "mailer", s.mailed)
	s.compare(dir, "audit", all)
	s.compare(dir, "stock", all)
	s.compareLetters()
}

// handled reads the lines of a unit, without what came again.
func handled(t *testing.T, dir, unit string) (lines []string, again int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, unit+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !seen[line] {
			lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), unit+" "))
		} else {
			again++
		}
		seen[line] = true
	}
	return lines, again
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
