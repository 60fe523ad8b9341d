package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/examples/recipes/internal/fleettest"
	"github.com/millrace/changefeed/feed"
)

const kills = 20

func TestMain(m *testing.M) { fleettest.RunAs(m, main) }

// shop is an account with orders and leases.
type shop struct {
	*cosmostest.Server
	*testing.T
	orders, records *docstore.Container
}

// The recorded leases have the positions 2329 and 2330.
const ordersBefore = 2400

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{Server: cosmostest.NewTestServer(t), T: t}
	if _, err := s.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	spec := docstore.LeaseSpec("leases")
	spec.Database = "shop"
	var err, failed error
	s.records, err = s.DB.CreateContainer(t.Context(), spec)
	s.orders, failed = s.DB.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "shop", ID: "orders", Paths: []string{"/city"}, Ranges: 4,
	})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	s.write(0, ordersBefore)
	return s
}

// write writes orders, each with an LSN of its own.
func (s *shop) write(from, to int) {
	s.Helper()
	for n := from; n < to; n++ {
		body := fmt.Appendf(nil, `{"id":"%d","city":"c%d"}`, n, n)
		if _, err := s.orders.Upsert(context.Background(), body); err != nil {
			s.Error(err)
		}
	}
}

// load writes lease documents of another processor into the account. Their ids name the account, the database and the
// container that the leases are for.
func (s *shop) load(file string) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		s.Fatal(err)
	}
	database, err := s.DB.Database("shop")
	if err != nil {
		s.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("DATABASE_CONTAINER"), fmt.Append(nil, database.RID, "_", s.orders.RID()))
	for line := range bytes.Lines(text) {
		if _, err := s.records.Upsert(s.Context(), line); err != nil {
			s.Fatal(err)
		}
	}
}

// caughtUp waits until a unit has handled what is there.
func (s *shop) caughtUp(unit string) {
	s.Helper()
	ctx, stop := context.WithTimeout(s.Context(), 40*time.Second)
	defer stop()
	if err := changefeed.CaughtUp(ctx, s.orders, s.leases(unit)); err != nil {
		s.Fatalf("%s: %v", unit, err)
	}
}

func (s *shop) leases(unit string) *cosmos.Leases {
	s.Helper()
	client, err := cosmos.OpenString(s.Context(), s.ConnectionString(), cosmos.Options{})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(client.Close)
	orders, err := client.Container(s.Context(), "shop", "orders")
	if err != nil {
		s.Fatal(err)
	}
	container, err := client.Container(s.Context(), "shop", "leases")
	if err != nil {
		s.Fatal(err)
	}
	leases, err := cosmos.OpenLeases(s.Context(), container, unit, orders, cosmos.LeaseOptions{Unnamed: unit == ""})
	if err != nil {
		s.Fatal(err)
	}
	return leases
}

// theirs is a lease document by the members that the .NET processor reads and writes.
type theirs struct {
	ID                string `json:"id"`
	Token             string `json:"LeaseToken"`
	FeedRange         struct{ Range feed.Range }
	ContinuationToken *string
}

// dotnet stands in for a .NET host, when the leases of killed processes have expired: it continues each lease from its
// token, handles each change, stores the token as .NET does, and returns how often it has handled each order.
func (s *shop) dotnet(unit string) map[string]int {
	s.Helper()
	handled := map[string]int{}
	prefix := unit + "localhost_"
	for stored, err := range s.records.Items(s.Context(), feed.FullRange(), "") {
		if err != nil {
			s.Fatal(err)
		}
		if !strings.HasPrefix(stored.ID, prefix) || !strings.Contains(stored.ID, "..") {
			continue
		}
		var l theirs
		var all map[string]any
		if err := errors.Join(json.Unmarshal(stored.Body, &l), json.Unmarshal(stored.Body, &all)); err != nil {
			s.Fatal(err)
		}
		if l.ContinuationToken == nil { // .NET would begin at its own start
			s.Fatalf("a .NET host cannot continue lease %s", stored.Body)
		}
		for at, more := feed.At(*l.ContinuationToken), true; more; {
			page, err := s.orders.Read(s.Context(), l.FeedRange.Range, at, feed.ReadOptions{})
			if err != nil {
				s.Fatal(err)
			}
			for _, c := range page.Changes {
				handled[c.ID]++
			}
			at, more = page.Next, len(page.Changes) > 0
			all["ContinuationToken"] = at.Token
		}
		all["Owner"] = nil
		body, err := json.Marshal(all)
		if err != nil {
			s.Fatal(err)
		}
		if _, err := s.records.Replace(s.Context(), body, stored.ETag); err != nil {
			s.Fatal(err)
		}
	}
	return handled
}

// goes runs the program with kills, while orders are written from a number on. It returns how often the program has
// handled each order, and the number of the next order.
func (s *shop) goes(unit string, kills, from int) (handled map[string]int, next int) {
	s.Helper()
	dir := s.TempDir()
	f := fleettest.New(dir, s.Key, "-source", s.URL+"/shop/orders", "-data", ".", "-name", unit)
	next = from
	f.KillMany(s.T, kills, func(context.Context) error {
		s.write(next, next+1)
		next++
		return nil
	}, func(int) {})
	if least := from + 100; next < least {
		s.write(next, least)
		next = least
	}
	s.caughtUp(unit)
	f.Stop(s.T)
	text, err := os.ReadFile(filepath.Join(dir, "handled.txt"))
	if err != nil {
		s.Fatal(err)
	}
	handled = map[string]int{}
	for line := range strings.Lines(string(text)) {
		handled[strings.Fields(line)[1]]++
	}
	return handled, next
}

// compare compares what was handled with the orders from..to. At most allowed of them may have come again.
func (s *shop) compare(who string, handled map[string]int, from, to, allowed int) {
	s.Helper()
	repeats := 0
	for n := from; n < to; n++ {
		if handled[fmt.Sprint(n)] == 0 {
			s.Errorf("%s has lost order %d", who, n)
		}
		repeats += max(0, handled[fmt.Sprint(n)]-1)
	}
	if len(handled) != to-from {
		s.Errorf("%s has handled %d orders, want the %d from %d to %d", who, len(handled), to-from, from, to)
	}
	if repeats > allowed {
		s.Errorf("%s has handled %d orders again, want at most %d", who, repeats, allowed)
	}
	s.Logf("%s: %d orders, %d again, %d allowed", who, len(handled), repeats, allowed)
}

// dotnetHandled is the number of orders that .NET has handled, by the recorded leases.
func (s *shop) dotnetHandled() int {
	s.Helper()
	place, err := s.orders.Locate(s.Context(), feed.Key("c2329")) // its LSN is 2330
	if err != nil {
		s.Fatal(err)
	}
	if place < "0FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF" {
		return 2329
	}
	return 2330
}

// allowed is how many orders may come again after kills: a batch of each of the four leases for each kill.
func allowed(kills int) int { return kills * 4 * 20 }

// A unit of .NET continues in Go, whose processes are killed; then in .NET; then in Go. A unit of Azure Functions has
// the same documents, and no name.
func TestAUnitOfDotNetGoesToGoAndBack(t *testing.T) {
	for unit, file := range map[string]string{"net": "dotnet.ndjson", "": "functions.ndjson"} {
		t.Run(file, func(t *testing.T) {
			s := newShop(t)
			s.load(file)
			n := kills
			if unit == "" {
				n = 2
			}
			begin := s.dotnetHandled()
			handled, next := s.goes(unit, n, ordersBefore)
			s.compare("Go", handled, begin, next, allowed(n))
			s.write(next, next+100)
			s.compare(".NET", s.dotnet(unit), next, next+100, 0)
			handled, last := s.goes(unit, 0, next+100)
			s.compare("Go again", handled, next+100, last, 0)
		})
	}
}

// A unit of Java continues in Go under another name. Java's leases stay, so Java has the orders of Go again if it goes
// on.
func TestAUnitOfJavaGoesToGo(t *testing.T) {
	s := newShop(t)
	s.load("java.ndjson")
	before := s.documents("java")
	snapshot, err := admin.Open(s.orders, s.leases("java"), admin.Options{}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Open(s.orders, s.leases("go"), admin.Options{}).Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	handled, next := s.goes("go", 2, ordersBefore)
	s.compare("Go", handled, s.dotnetHandled(), next, allowed(2))
	if after := s.documents("java"); after != before || before == "" {
		t.Errorf("Java's leases are\n%s\nand were\n%s", after, before)
	}
	java := fleettest.Recipe(t, t.TempDir(), "-source", s.URL+"/shop/orders", "-name", "java")
	java.Env = append(java.Env, "COSMOS_KEY="+s.Key)
	if said, err := java.CombinedOutput(); err == nil || !strings.Contains(string(said), "Java") {
		t.Errorf("the program with the name of Java's unit: %v\n%s", err, said)
	}
}

// documents returns the lease documents of a unit.
func (s *shop) documents(unit string) (text string) {
	s.Helper()
	for stored, err := range s.records.Items(s.Context(), feed.FullRange(), "") {
		if err != nil {
			s.Fatal(err)
		}
		if strings.HasPrefix(stored.ID, unit+"localhost_") {
			text += string(stored.Body) + "\n"
		}
	}
	return text
}
