package instance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
)

// A check finds that the source cannot be read, before anything runs.
func TestACheckReadsThePartitionsOfTheSource(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	orders, err := server.FreshContainer(t.Context(), "/id")
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for refused, want := range map[string]string{"/pkranges": "read the partitions of", "/nothing": ""} {
		through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, refused) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `{"code":"Forbidden","message":"no right"}`)
				return
			}
			through.ServeHTTP(w, r)
		}))
		s := settings(proxy.URL+"/"+orders.Database()+"/"+orders.ID(), io.Discard)
		s.Account = place.Settings{Key: server.Key}
		i, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		err = i.Check(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %s refused: %v, want %q", refused, err, want)
		}
		proxy.Close()
	}
}
