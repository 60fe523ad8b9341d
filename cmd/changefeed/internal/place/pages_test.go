package place

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// inPages is a server before another, which sends lists of databases and containers one resource a page, as an account
// may.
func inPages(t *testing.T, of string) (address string) {
	t.Helper()
	target, err := url.Parse(of)
	if err != nil {
		t.Fatal(err)
	}
	const at = "X-Test-Page" // the server does not know these continuations
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set(at, r.In.Header.Get("X-Ms-Continuation"))
		r.Out.Header.Del("X-Ms-Continuation")
	}}
	proxy.ModifyResponse = func(r *http.Response) error {
		path := r.Request.URL.Path
		if r.Request.Method != http.MethodGet || !strings.HasSuffix(path, "/colls") && path != "/dbs" {
			return nil
		}
		var whole map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&whole); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		_ = r.Body.Close() // read to its end
		for _, member := range []string{databases, containers} {
			var all []json.RawMessage
			if json.Unmarshal(whole[member], &all) != nil || len(all) == 0 {
				continue
			}
			n, _ := strconv.Atoi(r.Request.Header.Get(at)) // 0 for the first page
			whole[member] = json.RawMessage("[" + string(all[n]) + "]")
			if n+1 < len(all) {
				r.Header.Set("X-Ms-Continuation", strconv.Itoa(n+1))
			}
		}
		text, err := json.Marshal(whole)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		r.Header.Set("Content-Length", strconv.Itoa(len(text)))
		return err
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	return front.URL
}

// A container that an account lists on a later page exists: a command must not call its leases orphans.
func TestContainersOnLaterPagesExist(t *testing.T) {
	o, server, _ := remote(t)
	names := map[string]bool{}
	for _, database := range []string{"one", "two"} {
		if _, err := server.DB.CreateDatabase(t.Context(), database, nil); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			id := fmt.Sprint(database, i)
			if _, err := server.DB.CreateContainer(t.Context(),
				docstore.ContainerSpec{Database: database, ID: id, Paths: []string{"/id"}}); err != nil {
				t.Fatal(err)
			}
			names[database+"/"+id] = true
		}
	}
	t.Setenv(KeyVariable, cosmosrest.EmulatorKey)
	front := inPages(t, server.URL)
	a, err := Parse("ADDRESS", front+"/two/two1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	beside, err := o.Neighbours(t.Context(), c)
	var ids []string
	for _, n := range beside {
		ids = append(ids, n.Address.Container)
	}
	if slices.Sort(ids); err != nil || !slices.Equal(ids, []string{"two0", "two1", "two2"}) {
		t.Errorf("beside %s are %q, %v", a.Container, ids, err)
	}
	all, err := o.Names(t.Context(), a)
	if slices.Sort(all); err != nil || !slices.Equal(all, slices.Sorted(maps.Keys(names))) {
		t.Errorf("the account has %q, %v", all, err)
	}
	wrong, err := Parse("ADDRESS", front+"/two/nosuch")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Open(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "two/two2") {
		t.Errorf("a container that is not there: %v, want all names", err)
	}
}
