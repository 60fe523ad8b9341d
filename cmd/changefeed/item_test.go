package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
)

// What was written before an error is told, so that a script knows where to go on.
func TestAPutThatFailsReportsWhatItHasWritten(t *testing.T) {
	dir, in := t.TempDir(), filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(in, []byte(`[{"id":"new"},{"id":"000001"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, "create", "--db", dir, "--container", "orders", "--pk", "/id")
	command(t, "put", "--db", dir, "--container", "orders", writeFile(t, `{"id":"000001"}`))
	for _, form := range []string{"table", "json", "csv"} {
		out, _, err := call(t, "put", "--db", dir, "--container", "orders", in, "--create", "-o", form)
		if err == nil || !strings.Contains(err.Error(), "the document before this one was written") ||
			!strings.Contains(out, "new") {
			t.Errorf("-o %s: got %q, %v, want the new document, and the error of the other", form, out, err)
		}
		command(t, "delete", "--db", dir, "--container", "orders", "new", "--yes")
	}
}

// The rows of the pages before an error are right, also in a form that waits for more rows.
func TestAQueryThatFailsShowsTheRowsBefore(t *testing.T) {
	const megabyte = 1 << 20
	dir := t.TempDir()
	command(t, "create", "--db", dir, "--container", "orders", "--pk", "/id")
	text := strings.Repeat("x", megabyte)
	for _, document := range []string{
		`{"id":"1","t":"` + text + `"}`, `{"id":"2","t":"` + text + `"}`, `{"id":"3","t":"` + text + `"}`,
		`{"id":"4","t":"` + text + `"}`, `{"id":"5","t":"` + text + `","u":["` + text[:megabyte/2] + `"]}`,
	} {
		command(t, "put", "--db", dir, "--container", "orders", writeFile(t, document))
	}
	long := "ARRAY_CONCAT(c.u" + strings.Repeat(",c.u", 40) + ")" // too long for an account; undefined without u
	for _, form := range []string{"json", "csv"} {
		out, _, err := call(t, "query", "--db", dir, "--container", "orders", "SELECT c.id, c.t, "+long+" AS l FROM c",
			"-o", form, "--fields", "id")
		if err == nil || !strings.Contains(out, "1") {
			t.Errorf("-o %s: got %q, %v, want rows and an error", form, out, err)
		}
	}
}

// writeFile writes a text into a new file.
func writeFile(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "in.json")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A document that somebody changes after the look at it is not deleted. A proxy lets a change follow each look.
func TestADocumentThatChangesAfterTheLookIsNotDeleted(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	at, key := server.URL+"/shop/orders", []string{"--account-key", server.Key}
	command(t, append(key, "create", at, "--pk", "/id")...)
	command(t, append(key, "put", at, writeFile(t, `{"id":"1"}`))...)
	changed := writeFile(t, `{"id":"1","changed":true}`)
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodGet && strings.HasSuffix(r.Request.URL.Path, "/docs/1") {
				_, _, err := call(t, append(key, "put", at, changed)...)
				return err
			}
			return nil
		},
	})
	t.Cleanup(proxy.Close)
	_, _, err = call(t, append(key, "delete", proxy.URL+"/shop/orders", "1", "--yes")...)
	if err == nil || !strings.Contains(err.Error(), "was changed meanwhile, so nothing was deleted") {
		t.Errorf("got %v", err)
	}
	if got := command(t, append(key, "get", at, "1")...); !strings.Contains(got, `"changed"`) {
		t.Errorf("the document is %s", got)
	}
}
