package connect_test

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/connect"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// orders describes a container that is made if it is missing.
func orders() *docstore.ContainerSpec {
	return &docstore.ContainerSpec{Paths: []string{"/city"}, DefaultTTL: new(-1), Retention: time.Hour}
}

// places returns an address in a new store and one in a new account. The account has another key than the emulator.
func places(t *testing.T) map[string]string {
	t.Helper()
	server := cosmostest.StartTestServer(t, cosmostest.Options{
		Options: cosmosrest.Options{Keys: cosmosrest.Keys{Primary: "c2VjcmV0IG9mIHRoZSB0ZXN0Lg=="}},
	})
	t.Setenv("COSMOS_KEY", server.Key)
	return map[string]string{
		"a store":    "docstore:" + filepath.Join(t.TempDir(), "data") + "#shop/orders",
		"an account": server.URL + "/shop/orders",
	}
}

// The same program works with a store and with an account: it makes what is missing, writes, and handles the changes.
func TestAUnitWorksAtAnyAddress(t *testing.T) {
	for place, address := range places(t) {
		t.Run(place, func(t *testing.T) {
			for run := range 2 { // the second run finds what the first has made
				u, err := connect.Open(t.Context(), address, "mailer", connect.Options{Create: orders()})
				if err != nil {
					t.Fatal(err)
				}
				if run == 0 {
					body := []byte(`{"id":"1","city":"Oslo"}`)
					_, err := u.Source.Commit(t.Context(), feed.Key("Oslo"), []feed.Write{{Body: body}})
					if err != nil {
						t.Fatal(err)
					}
					if handled := runUntilHandled(t, u); handled != "1" {
						t.Errorf("handled %q, want 1", handled)
					}
				}
				if err := changefeed.CaughtUp(t.Context(), u.Source, u.Leases); err != nil {
					t.Error(err)
				}
				if err := u.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// runUntilHandled runs the unit until it has handled a change, and returns the id.
func runUntilHandled(t *testing.T, u *connect.Unit) (id string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	handler := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
		id = b.Changes[0].ID
		stop()
		return nil
	})
	p, err := changefeed.New(u.Source, u.Leases, handler, changefeed.Options{Start: feed.FromBeginning()})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return id
}

// Further containers and units share the store or the client, which cannot be opened twice.
func TestFurtherContainersAndUnits(t *testing.T) {
	for place, address := range places(t) {
		t.Run(place, func(t *testing.T) {
			o := connect.Options{Create: orders(), Leases: "positions"}
			u, err := connect.Open(t.Context(), address, "mailer", o)
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			letters, err := u.Container(t.Context(), "letters", &docstore.ContainerSpec{Paths: []string{"/key"}})
			if err != nil || letters.ID() != "letters" || letters.Database() != "shop" {
				t.Fatalf("letters: %v, %v", letters, err)
			}
			if _, err := u.Container(t.Context(), "positions", nil); err != nil {
				t.Error(err)
			}
			if _, err := u.Another(t.Context(), "audit"); err != nil {
				t.Error(err)
			}
			if _, err := u.Container(t.Context(), "none", nil); !errors.Is(err, feed.ErrNotFound) {
				t.Errorf("a missing container: %v, want %v", err, feed.ErrNotFound)
			}
		})
	}
}

// What was not asked for is not made, and an existing container with another key is not taken.
func TestNothingIsMadeUnasked(t *testing.T) {
	for place, address := range places(t) {
		t.Run(place, func(t *testing.T) {
			if _, err := connect.Open(t.Context(), address, "mailer", connect.Options{CreateLeases: true}); err == nil {
				t.Error("a container that does not exist was opened")
			}
			u, err := connect.Open(t.Context(), address, "mailer", connect.Options{Create: orders()})
			if err != nil {
				t.Fatal(err)
			}
			if err := u.Close(); err != nil {
				t.Fatal(err)
			}
			other := connect.Options{Create: &docstore.ContainerSpec{Paths: []string{"/customer"}}}
			_, err = connect.Open(t.Context(), address, "mailer", other)
			if !errors.Is(err, feed.ErrConflict) || !strings.Contains(err.Error(), "/city: want /customer") {
				t.Errorf("another key: %v, want a conflict that names both keys", err)
			}
			_, err = connect.Open(t.Context(), address, "mailer", connect.Options{Leases: "mistyped"})
			if !errors.Is(err, feed.ErrNotFound) {
				t.Errorf("mistyped leases: %v, want %v", err, feed.ErrNotFound)
			}
		})
	}
}

func TestWrongAddressesAreNamed(t *testing.T) {
	t.Setenv("COSMOS_KEY", "a2V5")
	t.Setenv("COSMOS_ENDPOINT", "https://contoso.documents.azure.com")
	for _, tt := range []struct{ address, leases, want string }{
		{"orders", "", `address is "orders": want docstore:DIR#container`},
		{"docstore:data#orders", "a/b/c", `Leases is "a/b/c": want the name`},
		{"https://example.invalid/shop/orders", "", "no key for https://example.invalid"},
	} {
		_, err := connect.Open(t.Context(), tt.address, "mailer", connect.Options{Leases: tt.leases})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, %s: %v, want %s", tt.address, tt.leases, err, tt.want)
		}
	}
}

// The account of the environment serves an address that names none, and a connection string has its own key.
func TestTheAccountOfTheEnvironment(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	t.Setenv("COSMOS_CONNECTION_STRING", server.ConnectionString())
	u, err := connect.Open(t.Context(), "cosmos:shop/orders", "mailer", connect.Options{Create: orders()})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if _, err := server.DB.Container("shop/orders"); err != nil {
		t.Error(err)
	}
	t.Setenv("COSMOS_CONNECTION_STRING", "AccountKey=c2VjcmV0")
	_, err = connect.Open(t.Context(), "cosmos:shop/orders", "mailer", connect.Options{})
	if err == nil || strings.Contains(err.Error(), "c2VjcmV0") || !strings.Contains(err.Error(), "AccountEndpoint") {
		t.Errorf("%v, want an error that names AccountEndpoint and not the key", err)
	}
}

// The key of the environment is not sent to another server of the same host. This one has the emulator's key, so it
// would refuse the other.
func TestTheKeyOfTheEnvironmentIsForOneServer(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("COSMOS_ENDPOINT", at.Scheme+"://"+at.Hostname()+":1")
	t.Setenv("COSMOS_KEY", "c2VjcmV0IG9mIGFub3RoZXI=")
	u, err := connect.Open(t.Context(), server.URL+"/shop/orders", "mailer", connect.Options{Create: orders()})
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
}

// What an account cannot be asked for is refused before anything is made.
func TestPropertiesOfStoresAreNotLeftOutInAnAccount(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	for name, change := range map[string]func(*docstore.ContainerSpec){
		"HashVersion": func(s *docstore.ContainerSpec) { s.HashVersion = 1 },
		"UniqueKeys":  func(s *docstore.ContainerSpec) { s.UniqueKeys = [][]string{{"/email"}} },
		"Meta":        func(s *docstore.ContainerSpec) { s.Meta = []byte(`{}`) },
	} {
		create := orders()
		change(create)
		_, err := connect.Open(t.Context(), server.URL+"/shop/orders", "mailer", connect.Options{Create: create})
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want ErrBadRequest", name, err)
		}
		if _, err := server.DB.Container("shop/orders"); !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("%s: the container was made: %v", name, err)
		}
	}
}

// Both containers of a unit are of the same kind.
func TestLeasesOfAnotherKindAreRefused(t *testing.T) {
	all := places(t)
	stored, remote := all["a store"], all["an account"]
	for address, leases := range map[string]string{
		stored: strings.Replace(remote, "orders", "leases", 1), remote: strings.Replace(stored, "orders", "leases", 1),
	} {
		_, err := connect.Open(t.Context(), address, "mailer", connect.Options{Create: orders(), Leases: leases})
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), "like the monitored one") {
			t.Errorf("%s with %s: %v, want a refusal", address, leases, err)
		}
	}
}
