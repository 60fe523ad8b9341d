package cosmos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A deployment unit of the .NET processor has stopped: two leases of version 0, named by
// partition key range ids, one of them still owned and at another position, and the
// marker. Ours takes over from those positions.
func TestAUnitOfTheDotNetProcessorIsContinued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, cosmosrest.Options{})
		items := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/city"}, Ranges: 2})
		records := s.create(t, docstore.ContainerSpec{
			ID: "leases", Paths: []string{"/id"},
			DefaultTTL: new(docstore.NoDefaultTTL),
		})
		store := unit(t, s.client(t, master, nil), "orders")
		write := func(from, to int) {
			for n := from; n < to; n++ {
				if err := put(t.Context(), items, fmt.Sprintf(`{"id":"%d","city":"c%d"}`, n, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		write(0, 20)
		positions := map[string]int64{"0": items.Head(), "1": 5}
		left := map[string]string{
			".info": `{"id":%q}`,
			"..0": `{"id":%q,"version":0,"_etag":null,"LeaseToken":"0","FeedRange":{"Range":{"min":"","max":"1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"}},` +
				`"Owner":null,"ContinuationToken":"\"20\"","properties":{"team":"red"},"timestamp":"1999-12-31T23:00:00.1234567Z","_ts":0,"Mode":"Incremental Feed"}`,
			"..1": `{"id":%q,"version":0,"_etag":null,"LeaseToken":"1",` +
				`"Owner":"dotnet-1","ContinuationToken":"\"5\"","properties":{},"timestamp":"2000-01-01T00:00:00Z","_ts":0}`,
		}
		for tail, doc := range left {
			if err := put(t.Context(), records, fmt.Sprintf(doc, store.Prefix()+tail)); err != nil {
				t.Fatal(err)
			}
		}
		marker := document(t, records, store.Prefix()+".info")
		write(20, 40)

		got := handleFor(t, s, feed.Start{}, 3*time.Minute)
		want := wantBehind(t, items, positions)
		if !maps.Equal(got, want) {
			t.Errorf("handled %v, want each of %v once", got, want)
		}
		for token := range positions {
			l := document(t, records, store.Prefix()+".."+token)
			checkDotNetLease(t, l)
			if l["ContinuationToken"] != strconv.Quote(strconv.FormatInt(items.Head(), 10)) || l["Owner"] != nil {
				t.Errorf("lease %s stands at %v and belongs to %v, want the head and nobody", token,
					l["ContinuationToken"], l["Owner"])
			}
		}
		if team := document(t, records, store.Prefix()+"..0")["properties"].(map[string]any)["team"]; team != "red" {
			t.Errorf("property team of the lease is %v, want it kept", team)
		}
		if now := document(t, records, store.Prefix()+".info"); now["_etag"] != marker["_etag"] {
			t.Error("the marker was written again")
		}
	})
}

// The leases that ours makes have the members of the .NET processor's, with its types.
func TestOurLeasesReadByTheFieldsOfDotNet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, cosmosrest.Options{})
		items := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/city"}, Ranges: 2})
		records := s.create(t, docstore.ContainerSpec{
			ID: "leases", Paths: []string{"/id"},
			DefaultTTL: new(docstore.NoDefaultTTL),
		})
		if err := put(t.Context(), items, `{"id":"1","city":"London"}`); err != nil {
			t.Fatal(err)
		}
		handleFor(t, s, feed.FromBeginning(), time.Minute)
		prefix := unit(t, s.client(t, master, nil), "orders").Prefix()
		leases := 0
		for it, err := range records.Items(t.Context(), feed.FullRange(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(it.ID, prefix+"..") {
				leases++
				checkDotNetLease(t, document(t, records, it.ID))
			}
		}
		if leases != 2 {
			t.Errorf("%d leases, want 2", leases)
		}
		if info := document(t, records, prefix+".info"); info["id"] != prefix+".info" {
			t.Errorf("marker is %v", info)
		}
	})
}

// handleFor runs an instance for a while and counts how often each change was handled.
func handleFor(t *testing.T, s *server, start feed.Start, d time.Duration) map[int64]int {
	t.Helper()
	client := s.client(t, master, nil)
	var mu sync.Mutex
	handled := map[int64]int{}
	p, err := changefeed.New(find(t, client, "items"), unit(t, client, "orders"),
		feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			for _, ch := range b.Changes {
				handled[ch.LSN]++
			}
			return nil
		}), changefeed.Options{Instance: "go-1", Start: start})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatalf("Run: %v", err)
	}
	return handled
}

// wantBehind are the changes behind the position of their partition, once each.
func wantBehind(t *testing.T, items *docstore.Container, positions map[string]int64) map[int64]int {
	t.Helper()
	want := map[int64]int{}
	for it, err := range items.Items(t.Context(), feed.FullRange(), "") {
		if err != nil {
			t.Fatal(err)
		}
		at, err := items.Locate(t.Context(), it.Key)
		if err != nil {
			t.Fatal(err)
		}
		if it.LSN > positions[items.PartitionAt(at).ID] {
			want[it.LSN] = 1
		}
	}
	return want
}

// document is an item of a container whose partition key is /id.
func document(t *testing.T, c *docstore.Container, id string) map[string]any {
	t.Helper()
	it, err := c.Item(t.Context(), feed.Key(id), id)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(it.Body, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// checkDotNetLease checks the members that the .NET processor reads, their types, and
// that there are no others on the top level.
func checkDotNetLease(t *testing.T, l map[string]any) {
	t.Helper()
	text := func(v any) bool { _, ok := v.(string); return ok }
	optional := func(v any) bool { return v == nil || text(v) }
	number := func(v any) bool { _, ok := v.(float64); return ok }
	members := map[string]func(any) bool{
		"id": text, "version": number, "LeaseToken": text, "Owner": optional, "ContinuationToken": optional,
		"_etag": text, "_ts": number, "_rid": text, "_self": text, "_attachments": text,
		"timestamp": func(v any) bool {
			_, err := time.Parse(time.RFC3339Nano, fmt.Sprint(v))
			return v == nil || err == nil
		},
		"Mode": func(v any) bool { return v == nil || v == "Incremental Feed" },
		"FeedRange": func(v any) bool {
			r, _ := v.(map[string]any)
			b, _ := r["Range"].(map[string]any)
			return v == nil || text(b["min"]) && text(b["max"])
		},
		"properties": func(v any) bool {
			p, ok := v.(map[string]any)
			for _, value := range p {
				ok = ok && text(value)
			}
			return ok
		},
	}
	for name, value := range l {
		if fits := members[name]; fits == nil || !fits(value) {
			t.Errorf("lease %v: member %s is %v, which the .NET processor would not read", l["id"], name, value)
		}
	}
	for _, name := range []string{
		"id", "version", "LeaseToken", "Owner", "ContinuationToken", "properties",
		"timestamp",
	} {
		if _, ok := l[name]; !ok {
			t.Errorf("lease %v has no %s", l["id"], name)
		}
	}
}

// A unit is one, by whatever name of this machine it was made: a new one is named as the
// .NET processor would name it, and who comes by another name, or opens the store itself,
// finds it.
func TestAUnitIsTheSameInAStoreAndOnItsServer(t *testing.T) {
	names := map[string]string{
		"http://127.0.0.1:8081": "orders127.0.0.1_", "http://LocalHost": "orderslocalhost_",
		"http://[::1]:8081": "orders[::1]_",
	}
	for maker, begins := range names {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, cosmosrest.Options{})
			items := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/city"}})
			records := s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}})
			open := func(endpoint string) *cosmos.Leases {
				client, err := cosmos.Open(t.Context(), endpoint, master,
					cosmos.Options{Transport: &http.Client{Transport: s.transport}})
				if err != nil {
					t.Fatal(err)
				}
				return unit(t, client, "orders")
			}
			made := open(maker)
			if !strings.HasPrefix(made.Prefix(), begins) {
				t.Errorf("by %s the unit is %q, want %s…", maker, made.Prefix(), begins)
			}
			if _, err := made.Create(t.Context(), feed.Record{
				Kind: feed.KindLease, Token: "-FF",
				Range: feed.FullRange(), Version: 1,
			}); err != nil {
				t.Fatal(err)
			}
			for endpoint := range names {
				again := open(endpoint)
				if got := again.Prefix(); got != made.Prefix() {
					t.Errorf("by %s the unit is %q, want %q", endpoint, got, made.Prefix())
				}
				if records, _, err := again.List(t.Context()); err != nil || len(records) != 1 {
					t.Errorf("by %s the unit has the records %v, %v, want its lease once", endpoint, records, err)
				}
			}
			direct, err := docstore.NewLeases(t.Context(), records, "orders", items)
			if err != nil || direct.Prefix() != made.Prefix() {
				t.Errorf("in the store the unit is %q, %v, want %q", direct.Prefix(), err, made.Prefix())
			}
		})
	}
}

// Two sets of leases of one unit are not worked on in silence, nor are those of Java's
// older processor, which go by the container's name.
func TestASecondSetOfLeasesIsRefusedByName(t *testing.T) {
	for _, id := range []string{"orderslocalhost_%s..0", "orders127.0.0.1_default_items..0"} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, cosmosrest.Options{})
			items := s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/city"}})
			records := s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}})
			client, err := cosmos.Open(t.Context(), "http://127.0.0.1:8081", master,
				cosmos.Options{Transport: &http.Client{Transport: s.transport}})
			if err != nil {
				t.Fatal(err)
			}
			ours := unit(t, client, "orders")
			if _, err := ours.Create(t.Context(), feed.Record{
				Kind: feed.KindLease, Token: "-FF",
				Range: feed.FullRange(), Version: 1,
			}); err != nil {
				t.Fatal(err)
			}
			_, rids, _ := strings.Cut(ours.Prefix(), "_")
			if strings.Contains(id, "%s") {
				id = fmt.Sprintf(id, rids)
			}
			if err := put(t.Context(), records,
				fmt.Sprintf(`{"id":%q,"LeaseToken":"0","ContinuationToken":"\"1\"","Owner":null}`, id)); err != nil {
				t.Fatal(err)
			}
			direct, err := docstore.NewLeases(t.Context(), records, "orders", items)
			if err != nil {
				t.Fatal(err)
			}
			for _, store := range []feed.LeaseStore{unit(t, client, "orders"), direct} {
				p, err := changefeed.New(items, store, feed.HandlerFunc(func(context.Context, *feed.Batch) error {
					return nil
				}), changefeed.Options{
					Instance: "go-1", Hooks: changefeed.Hooks{Ready: func(context.Context) {
						t.Error("the hook said Ready")
					}},
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Run(t.Context()); !errors.Is(err, feed.ErrForeignLease) ||
					!strings.HasPrefix(err.Error(), "orders") {
					t.Errorf("Run: %v, want ErrForeignLease with the leases", err)
				}
			}
		})
	}
}
