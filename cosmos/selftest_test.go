package cosmos_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func TestTheSelfTestNamesTheRightThatIsMissing(t *testing.T) {
	every := append(slices.Clone(withoutDelete), container0+"items/delete")
	for _, missing := range append(slices.Clone(every), "") {
		t.Run(missing, func(t *testing.T) {
			rest := slices.DeleteFunc(slices.Clone(every), func(action string) bool { return action == missing })
			tokens, worker := entra(t, rest...)
			s := serve(t, cosmosrest.Options{Tokens: tokens})
			s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}, Ranges: 3})
			leases := s.create(t, docstore.ContainerSpec{
				ID: "leases", Paths: []string{"/id"},
				DefaultTTL: new(docstore.NoDefaultTTL),
			})
			var log bytes.Buffer
			err := selfTest(t, s, worker, slog.New(slog.NewTextHandler(&log, nil)))
			switch {
			case missing == "":
				if err != nil || log.Len() > 0 {
					t.Errorf("with every right: %v, log %s", err, log.String())
				}
			case missing == container0+"items/delete":
				if err != nil || !strings.Contains(log.String(), missing) {
					t.Errorf("without the right to delete: %v, log %s, want a warning", err, log.String())
				}
				return
			case !errors.Is(err, feed.ErrForbidden) || !strings.Contains(err.Error(), "it needs the action "+missing):
				t.Errorf("%v, want an error that names %s", err, missing)
			}
			if missing != container0+"items/replace" && leases.Count() != 0 {
				t.Errorf("%d documents are left behind", leases.Count())
			}
		})
	}
}

func selfTest(t *testing.T, s *server, credential cosmos.Credential, log *slog.Logger) error {
	t.Helper()
	client, err := cosmos.Open(t.Context(), "http://account.example", credential,
		cosmos.Options{Transport: &http.Client{Transport: s.transport}, Logger: log})
	if err != nil {
		return err
	}
	items := find(t, client, "items")
	leases, err := cosmos.OpenLeases(t.Context(), find(t, client, "leases"), "unit", items, cosmos.LeaseOptions{})
	if err != nil {
		return err
	}
	return leases.SelfTest(t.Context(), items, feed.LatestVersion)
}

// TestASelfTestWaitsForAThrottledContainer has more instances start than their containers
// can bear.
func TestASelfTestWaitsForAThrottledContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, cosmosrest.Options{Throughput: 20})
		s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
		leases := s.create(t, docstore.ContainerSpec{
			ID: "leases", Paths: []string{"/id"},
			DefaultTTL: new(docstore.NoDefaultTTL),
		})
		var starting sync.WaitGroup
		for range 8 {
			starting.Go(func() {
				if err := selfTest(t, s, master, nil); err != nil {
					t.Error(err)
				}
			})
		}
		starting.Wait()
		if leases.Count() != 0 {
			t.Errorf("%d documents are left behind", leases.Count())
		}
	})
}

// TestASelfTestPausesAsLongAsItIsAsked has a container that is throttled for half a minute. What the test writes goes
// by itself if the test is cut off.
func TestASelfTestPausesAsLongAsItIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &account{}
		items := a.open(t, cosmos.Options{})
		leases := a.leases(t, items)
		begun, probe := time.Now(), ""
		a.trouble = func(r *http.Request, _ int) (*http.Response, error) {
			if time.Since(begun) < 30*time.Second {
				return say(429, "{}", "x-ms-retry-after-ms", "5000"), nil
			}
			if r.Method != http.MethodPost {
				return nil, nil
			}
			body, err := io.ReadAll(r.Body)
			probe = string(body)
			return say(201, `{"Documents":[],"_etag":"\"e\""}`), err
		}
		if err := leases.SelfTest(t.Context(), items, feed.LatestVersion); err != nil ||
			!strings.Contains(probe, `"ttl":60`) {
			t.Errorf("%v, and the probe was %s", err, probe)
		}
	})
}

// The rights in one container say nothing of those in another, so each request is tried where the processor makes it.
func TestASelfTestTriesEveryKindOfRequest(t *testing.T) {
	for name, is := range map[string]func(r *http.Request) bool{
		"the feed in its mode": func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/items/") && r.Header.Get("A-IM") == "Full-Fidelity Feed"
		},
		"the feed of the leases": func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "/leases/") && r.Header.Get("A-IM") != ""
		},
		"their query": func(r *http.Request) bool { return r.Header.Get("x-ms-documentdb-isquery") != "" },
		"their writes": func(r *http.Request) bool {
			return r.Method == http.MethodPost && r.Header.Get("x-ms-documentdb-isquery") == ""
		},
	} {
		a := &account{}
		items := a.open(t, cosmos.Options{})
		leases := a.leases(t, items)
		a.trouble = func(r *http.Request, _ int) (*http.Response, error) {
			switch {
			case is(r):
				return say(403, "{}", "x-ms-substatus", "5302"), nil
			case r.Method == http.MethodPost:
				return say(201, `{"Documents":[],"_etag":"\"e\""}`), nil
			}
			return nil, nil
		}
		if err := leases.SelfTest(t.Context(), items, feed.AllVersionsAndDeletes); !errors.Is(err, feed.ErrForbidden) {
			t.Errorf("without the right to %s: %v, want ErrForbidden", name, err)
		}
	}
}

func TestWhatOpenLeasesRefuses(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	s.create(t, docstore.ContainerSpec{ID: "levels", Paths: []string{"/id", "/partitionKey"}})
	client := s.client(t, master, nil)
	items := find(t, client, "items")
	for _, c := range []struct {
		container, processor string
		o                    cosmos.LeaseOptions
		want                 string
	}{
		{"items", "unit", cosmos.LeaseOptions{}, "default/items is [/pk]: want /id or /partitionKey"},
		{"levels", "unit", cosmos.LeaseOptions{}, "[/id /partitionKey]"},
		{"leases", " ", cosmos.LeaseOptions{}, "processor name"},
		{"leases", "a/b", cosmos.LeaseOptions{}, "processor name"},
		{"leases", "unit", cosmos.LeaseOptions{FollowEvery: 1}, "FollowEvery is 1ns"},
	} {
		_, err := cosmos.OpenLeases(t.Context(), find(t, client, c.container), c.processor, items, c.o)
		if !errors.Is(err, feed.ErrBadRequest) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("OpenLeases(%s, %q, %+v): %v, want a bad request with %q", c.container, c.processor, c.o, err,
				c.want)
		}
	}
}

func TestTheShortestPaceOfFollowing(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	s.create(t, docstore.ContainerSpec{ID: "leases", Paths: []string{"/id"}, DefaultTTL: new(docstore.NoDefaultTTL)})
	client := s.client(t, master, nil)
	o := cosmos.LeaseOptions{FollowEvery: time.Second}
	if _, err := cosmos.OpenLeases(t.Context(), find(t, client, "leases"), "unit", find(t, client, "items"),
		o); err != nil {
		t.Error(err)
	}
}

func TestAWrongKeyIsToldInOneLine(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	_, err := cosmos.Open(t.Context(), "http://account.example", cosmos.Key("YW5vdGhlciBrZXk="),
		cosmos.Options{Transport: &http.Client{Transport: s.transport}})
	const want = "open account http://account.example: GET /: 401 Unauthorized: The authorization token does not fit " +
		"the request: the key is a wrong one, or something else was signed. (activity "
	if !errors.Is(err, feed.ErrForbidden) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got  %v\nwant %s…)", err, want)
	}
}

func TestALeaseContainerIsMadeOnce(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	client := s.client(t, master, nil)
	_, err := client.Container(t.Context(), docstore.DefaultDatabase, "leases")
	if !errors.Is(err, feed.ErrNotFound) || !strings.HasPrefix(err.Error(), "open container default/leases: ") {
		t.Errorf("a missing container: %v, want ErrNotFound that names it", err)
	}
	for range 2 {
		if _, err := client.CreateLeaseContainer(t.Context(), docstore.DefaultDatabase, "leases"); err != nil {
			t.Fatal(err)
		}
	}
	made, err := s.db.Container("leases")
	if err != nil {
		t.Fatal(err)
	}
	spec := made.Spec()
	if spec.Paths[0] != "/id" || spec.HashVersion != 2 || spec.DefaultTTL == nil ||
		*spec.DefaultTTL != docstore.NoDefaultTTL {
		t.Errorf("lease container is %+v", spec)
	}
	leases := unit(t, client, "unit")
	if _, err := leases.Create(t.Context(), feed.Record{Kind: feed.KindInfo}); err != nil {
		t.Error(err)
	}
	if want := "unitaccount.example_" + s.db.RID() + "_"; !strings.HasPrefix(leases.Prefix(), want) {
		t.Errorf("prefix is %s, want %s…", leases.Prefix(), want)
	}
	if _, err := client.CreateLeaseContainer(t.Context(), "nowhere", "leases"); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("in a database that is missing: %v, want ErrNotFound", err)
	}
}

func TestALetterContainerIsMadeOnce(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	s.create(t, docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}})
	client := s.client(t, master, nil)
	letter := feed.DeadLetter{
		ID: "7.a", Disposition: feed.DispositionFailed,
		Change: feed.Change{ID: "1", PartitionKey: feed.Key("Ghent"), LSN: 7, Body: []byte(`{"id":"1"}`)},
	}
	n := 0
	for range 2 {
		made, err := client.CreateLetterContainer(t.Context(), docstore.DefaultDatabase, "letters")
		if err != nil {
			t.Fatal(err)
		}
		box, err := deadletters.Container(made, "unit", made)
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Put(t.Context(), letter); err != nil {
			t.Fatal(err)
		}
		for range box.Letters(t.Context(), letter.Change.PartitionKey) {
			n++
		}
	}
	made, err := s.db.Container("letters")
	if err != nil {
		t.Fatal(err)
	}
	if made.Spec().DefaultTTL != nil || n != 2 {
		t.Errorf("letter container is %+v, with %d letters read, want one each time", made.Spec(), n)
	}
	if _, err := client.CreateLetterContainer(t.Context(), "nowhere", "letters"); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("in a database that is missing: %v, want ErrNotFound", err)
	}
}

// TestAContainerMadeAnewIsAnother refuses to go on with positions of the old one.
func TestAContainerMadeAnewIsAnother(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	spec := docstore.ContainerSpec{ID: "items", Paths: []string{"/pk"}}
	s.create(t, spec)
	items := find(t, s.client(t, master, nil), "items")
	if err := read(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	if err := s.db.DeleteContainer(t.Context(), "items"); err != nil {
		t.Fatal(err)
	}
	s.create(t, spec)
	if err := read(t.Context(), items); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("read of a container that was made anew: %v, want ErrNotFound", err)
	}
	if err := write(t.Context(), items); !errors.Is(err, cosmos.ErrMadeAnew) {
		t.Errorf("write to a container that was made anew: %v, want ErrMadeAnew", err)
	}
	if _, err := items.Partitions(t.Context()); !errors.Is(err, cosmos.ErrMadeAnew) {
		t.Errorf("partitions of a container that was made anew: %v, want ErrMadeAnew", err)
	}
}

// A container is made with all that its specification says, with the database; an existing container stays.
func TestAContainerIsMadeWithItsDatabase(t *testing.T) {
	s := serve(t, cosmosrest.Options{})
	client := s.client(t, master, nil)
	spec := cosmos.ContainerSpec{Paths: []string{"/a", "/b/c"}, DefaultTTL: new(60), Retention: 5 * time.Minute}
	for range 2 {
		made, err := client.CreateContainer(t.Context(), "shop", "orders", spec)
		if err != nil || !reflect.DeepEqual(made.KeyPaths(), [][]string{{"a"}, {"b", "c"}}) {
			t.Fatalf("%v, %v", made, err)
		}
		spec.DefaultTTL = new(61) // of no effect
	}
	stored, err := s.db.Container("shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	if got := stored.Spec(); *got.DefaultTTL != 60 || got.Retention != 5*time.Minute || got.HashVersion != 2 {
		t.Errorf("made %+v", got)
	}
	spec.Retention = time.Second
	if _, err := client.CreateContainer(t.Context(), "shop", "others", spec); !errors.Is(err, feed.ErrBadRequest) {
		t.Errorf("a retention of a second: %v, want %v", err, feed.ErrBadRequest)
	}
}
