package place

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestContainersOfAStoreShareItsOpening(t *testing.T) {
	o := NewOpener(Settings{})
	dir := filepath.Join(t.TempDir(), "store")
	for _, container := range []string{"orders", "leases", "orders"} {
		a := Address{Dir: dir, Database: docstore.DefaultDatabase, Container: container}
		wanted := Wanted{Spec: docstore.ContainerSpec{Paths: []string{"/id"}}, Given: func(string) bool {
			return false
		}}
		if _, err := o.Make(t.Context(), a, wanted); err != nil {
			t.Errorf("%s: %v", container, err)
		}
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// Two openings of one directory would lose what they write.
func TestAllPathsOfADirectoryShareItsOpening(t *testing.T) {
	o := NewOpener(Settings{})
	parent := t.TempDir()
	dir, link := filepath.Join(parent, "store"), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skipf("the system makes no link: %v", err)
	}
	wanted := Wanted{Spec: docstore.ContainerSpec{Paths: []string{"/id"}}, Given: func(string) bool { return false }}
	t.Chdir(parent)
	for _, path := range []string{"store", dir, "./store", link} {
		a := Address{Dir: path, Database: docstore.DefaultDatabase, Container: "orders"}
		if _, err := o.Sharing(Settings{}).Make(t.Context(), a, wanted); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if n := len(o.stores.byDir); n != 1 {
		t.Errorf("the directory is open %d times", n)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// A store whose disk has failed, or that was closed, refuses everything: who opens it again gets another one.
func TestAStoreThatIsOverIsOpenedAgain(t *testing.T) {
	o := NewOpener(Settings{})
	a := Address{Dir: t.TempDir(), Database: docstore.DefaultDatabase, Container: "orders"}
	wanted := Wanted{Spec: docstore.ContainerSpec{Paths: []string{"/id"}}, Given: func(string) bool { return false }}
	if _, err := o.Make(t.Context(), a, wanted); err != nil {
		t.Fatal(err)
	}
	if err := o.stores.byDir[directory(a.Dir)].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Open(t.Context(), a); err != nil {
		t.Error(err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// Whoever mends the wrong flag would get the wrong store.
func TestAWrongDefinitionLeavesNoStoreBehind(t *testing.T) {
	o := NewOpener(Settings{})
	dir := filepath.Join(t.TempDir(), "store")
	a := Address{Dir: dir, Database: docstore.DefaultDatabase, Container: "orders"}
	wrong := Wanted{Spec: docstore.ContainerSpec{Paths: []string{"city"}}, Given: func(string) bool { return true }}
	_, err := o.Make(t.Context(), a, wrong)
	if !errors.As(err, new(usage.Error)) {
		t.Errorf("a path without its slash: %v, want an error of usage", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("there is a store: %v", err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// What a store refuses is refused to a server too, before anything is made.
func TestAWrongDefinitionLeavesNothingOnAServer(t *testing.T) {
	o, server, a := remote(t)
	for says, spec := range map[string]docstore.ContainerSpec{
		"retention is -1h0m0s: want 0 or more": {
			Paths: []string{"/city"}, Ranges: 1,
			Retention: -time.Hour,
		},
		"--retention is 30s: want 1m or more": {
			Paths: []string{"/city"}, Ranges: 1,
			Retention: 30 * time.Second,
		},
		"--retention is 1m30s: want whole minutes": {
			Paths: []string{"/city"}, Ranges: 1,
			Retention: 90 * time.Second,
		},
		"ranges is 5000: want 1 to 1000":                   {Paths: []string{"/city"}, Ranges: 5000},
		"4 partition key paths: want 1 to 3":               {Paths: []string{"/a", "/b", "/c", "/d"}, Ranges: 1},
		`path "/_ts" leads to a system property: want one`: {Paths: []string{"/_ts"}, Ranges: 1},
	} {
		_, err := o.Make(t.Context(), a, Wanted{Spec: spec, Given: func(name string) bool {
			return name != "ranges" || spec.Ranges > 1
		}})
		if !errors.As(err, new(usage.Error)) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q, an error of usage", err, says)
		}
	}
	for _, d := range server.DB.Databases() {
		if d.ID == a.Database {
			t.Errorf("there is database %q", d.ID)
		}
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

func TestVersionsAreReadWhereTheyAreKept(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for retention, keeps := range map[time.Duration]bool{0: false, time.Hour: true} {
		spec := docstore.ContainerSpec{ID: retention.String(), Paths: []string{"/city"}, Retention: retention}
		c, err := db.CreateContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		stored := Stored(c, Address{})
		if err := stored.Retains(feed.LatestVersion); err != nil {
			t.Errorf("the latest version: %v", err)
		}
		if err := stored.Retains(feed.AllVersionsAndDeletes); (err == nil) != keeps {
			t.Errorf("all versions of a retention of %v: %v", retention, err)
		}
	}
}

// remote is an Opener, and the address of a container at a server.
func remote(t *testing.T) (*Opener, *cosmostest.Server, Address) {
	t.Helper()
	for _, name := range []string{EndpointVariable, KeyVariable, ConnectionVariable} {
		t.Setenv(name, "")
	}
	server := cosmostest.NewTestServer(t)
	a, err := Parse("ADDRESS", server.URL+"/shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	o := NewOpener(Settings{})
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o, server, a
}

func TestAContainerOfAServerIsMadeAsItIsWanted(t *testing.T) {
	o, server, a := remote(t)
	wanted := Wanted{Given: func(string) bool { return true }, Spec: docstore.ContainerSpec{
		Paths: []string{"/city", "/street"}, DefaultTTL: new(60), Retention: 90 * time.Minute, Ranges: 3,
	}}
	for range 2 { // the second time it is there
		c, err := o.Make(t.Context(), a, wanted)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := c.Source.Partitions(t.Context())
		if err != nil || len(parts) != 3 || !reflect.DeepEqual(c.Paths, wanted.Spec.Paths) {
			t.Errorf("partitions %v, %v, and paths %v", parts, err, c.Paths)
		}
		for i, part := range feed.FullRange().Cut(3) {
			if parts[i].Range != part {
				t.Errorf("partition %d is %v, want %v", i, parts[i].Range, part)
			}
		}
		if err := c.Account.create(t.Context(), a, wanted.Spec, 0); err != nil {
			t.Errorf("made by two at once: %v", err)
		}
		if again, err := o.Account(t.Context(), a); again != c.Account || err != nil {
			t.Errorf("another client for the same account, %v", err)
		}
	}
	made, err := server.DB.Container("shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	s, want := made.Spec(), wanted.Spec
	if !reflect.DeepEqual(s.Paths, want.Paths) || s.DefaultTTL == nil || *s.DefaultTTL != 60 ||
		s.Retention != want.Retention {
		t.Errorf("made %+v, want %+v", s, want)
	}
	for flag, change := range map[string]func(*docstore.ContainerSpec){
		"pk":        func(s *docstore.ContainerSpec) { s.Paths = []string{"/city"} },
		"ttl":       func(s *docstore.ContainerSpec) { s.DefaultTTL = nil },
		"retention": func(s *docstore.ContainerSpec) { s.Retention = time.Hour },
		"ranges":    func(s *docstore.ContainerSpec) { s.Ranges = 4 },
	} {
		other := wanted
		change(&other.Spec)
		_, err := o.Make(t.Context(), a, other)
		if !errors.As(err, new(usage.Error)) || !strings.HasPrefix(err.Error(), "--"+flag+" is ") {
			t.Errorf("another %s: %v, want an error of usage", flag, err)
		}
	}
}

func TestWhatAServerHasIsNamed(t *testing.T) {
	o, _, a := remote(t)
	wanted := Wanted{Given: func(string) bool { return false }, Spec: docstore.ContainerSpec{Paths: []string{"/city"}}}
	if _, err := o.Make(t.Context(), a, wanted); err != nil {
		t.Fatal(err)
	}
	_, err := o.Open(t.Context(), a.Beside("order"))
	if want := ": want one of shop/orders"; !errors.Is(err, ErrNoContainer) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("a container that is not there: %v, want%s", err, want)
	}
	a.Database = "shops"
	if _, err := o.Open(t.Context(), a); !errors.Is(err, ErrNoDatabase) || !strings.Contains(err.Error(), "shop") {
		t.Errorf("a database that is not there: %v, want those that are", err)
	}
}

func TestLeasesAreMadeBesideTheirContainer(t *testing.T) {
	o := NewOpener(Settings{})
	a := Address{Dir: filepath.Join(t.TempDir(), "store"), Database: "shop", Container: "orders"}
	wanted := Wanted{Spec: docstore.ContainerSpec{Paths: []string{"/city"}}, Given: func(string) bool { return false }}
	if _, err := o.Make(t.Context(), a, wanted); err != nil {
		t.Fatal(err)
	}
	if _, err := o.CreateLeases(t.Context(), a.Beside("leases")); err != nil {
		t.Error(err)
	}
	if c, err := o.Open(t.Context(), a.Beside("leases")); err != nil || c.Local.Database() != "shop" {
		t.Errorf("the leases are not in the database of their container: %v", err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
