package place

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
)

// inFrontOf starts a proxy of a server, which hands requests and answers to two functions.
func inFrontOf(t *testing.T, server *cosmostest.Server, serve func(http.ResponseWriter, *http.Request) (done bool),
	change func(*http.Response) error,
) string {
	t.Helper()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	through := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, ModifyResponse: change,
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !serve(w, r) {
			through.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// A function reads from the regions that it prefers, with the name that it gives its client.
func TestALoginPrefersItsRegions(t *testing.T) {
	_, server, _ := remote(t)
	made(t, server, docstore.ContainerSpec{Database: "shop", ID: "orders", Paths: []string{"/id"}})
	var south, west string
	var inWest, named atomic.Int64
	describe := func(r *http.Response) error {
		if r.Request.URL.Path != "/" {
			return nil
		}
		var account map[string]any
		if err := json.NewDecoder(r.Body).Decode(&account); err != nil {
			return err
		}
		region := func(name, at string) map[string]string {
			return map[string]string{"name": name, "databaseAccountEndpoint": at}
		}
		here := region("South Central US", south)
		account["writableLocations"] = []any{here}
		account["readableLocations"] = []any{here, region("West Europe", west)}
		text, err := json.Marshal(account)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		r.Header.Del("Content-Length")
		return err
	}
	count := func(n *atomic.Int64) func(http.ResponseWriter, *http.Request) bool {
		return func(_ http.ResponseWriter, r *http.Request) bool {
			n.Add(1)
			if strings.Contains(r.UserAgent(), "my-app") {
				named.Add(1)
			}
			return false
		}
	}
	south = inFrontOf(t, server, count(new(atomic.Int64)), describe)
	west = inFrontOf(t, server, count(&inWest), describe)
	o := NewOpener(Settings{})
	login := &Login{
		From: "setting Shop", Endpoint: south, Key: server.Key, Regions: []string{"West Europe"}, Agent: "my-app",
	}
	c, err := o.Open(t.Context(), login.Address("the container", "shop", "orders"))
	if err == nil {
		_, err = c.Source.Partitions(t.Context())
	}
	if err != nil || inWest.Load() == 0 || named.Load() == 0 {
		t.Errorf("%v; %d requests in the preferred region, %d with the name of the app", err, inWest.Load(), named.Load())
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// made makes a container, and its database.
func made(t *testing.T, server *cosmostest.Server, spec docstore.ContainerSpec) {
	t.Helper()
	if _, err := server.DB.CreateDatabase(t.Context(), spec.Database, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := server.DB.CreateContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

// An account of the API for Gremlin refuses the key /id, so the leases have another one. Their throughput stays.
func TestLeasesAreMadeInAnAccountForGremlin(t *testing.T) {
	_, server, _ := remote(t)
	for _, isGremlin := range []bool{false, true} {
		database := map[bool]string{false: "shop", true: "graph"}[isGremlin]
		want := map[bool]string{false: "/id", true: "/partitionKey"}[isGremlin]
		refuse := func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/colls") {
				return false
			}
			body, err := io.ReadAll(r.Body)
			if r.Body = io.NopCloser(bytes.NewReader(body)); !isGremlin || !bytes.Contains(body, []byte(`"/id"`)) {
				return false
			}
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"code":"BadRequest","message":"Gremlin accounts do not support /id"}`)
			return err == nil
		}
		o := NewOpener(Settings{})
		login := &Login{
			From: "setting Shop", Key: server.Key,
			Endpoint: inFrontOf(t, server, refuse, func(*http.Response) error { return nil }),
		}
		c, err := o.MakeLeases(t.Context(), login.Address("the lease container", database, "leases"), 500)
		if err != nil {
			t.Fatal(err)
		}
		leases, err := server.DB.Container(database + "/leases")
		if err != nil || !slices.Equal(leases.Spec().Paths, []string{want}) || leases.Spec().DefaultTTL == nil {
			t.Errorf("made %+v, %v, want the key %s and a time to live", leases.Spec(), err, want)
		}
		offers, err := c.Account.List(t.Context(), "Offers", "offers")
		of := func(offer []byte) bool {
			return bytes.Contains(offer, []byte(leases.RID())) && bytes.Contains(offer, []byte(`"offerThroughput":500`))
		}
		if err != nil || !slices.ContainsFunc(offers, of) {
			t.Errorf("the offers are %s, %v, want 500 for %s", offers, err, leases.RID())
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Openers that share their stores find a store by each of its spellings, and the first one closes it.
func TestOpenersShareAStoreInEachSpelling(t *testing.T) {
	dir := t.TempDir()
	db, err := docstore.Open(dir, docstore.Options{})
	if err == nil {
		_, err = db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	first := NewOpener(Settings{})
	for _, spelling := range []string{dir, dir + "/", dir + "/../" + dir[strings.LastIndexByte(dir, '/')+1:]} {
		second := first.Sharing(Settings{})
		at, err := Parse("ADDRESS", "docstore:"+spelling+"#orders")
		if err != nil {
			t.Fatal(err)
		}
		c, err := second.Open(t.Context(), at)
		if err != nil {
			t.Errorf("%s: %v", spelling, err)
			continue
		}
		if err := second.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Local.Upsert(t.Context(), []byte(`{"id":"1"}`)); err != nil {
			t.Errorf("%s: the store is closed to the others: %v", spelling, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if db, err = docstore.Open(dir, docstore.Options{}); err != nil {
		t.Fatalf("the store was not closed: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
