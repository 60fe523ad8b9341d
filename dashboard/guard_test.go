package dashboard

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type headers = map[string]string

// bearer and basic are the two ways in which a request has a key.
func bearer(key string) headers { return headers{"Authorization": "Bearer " + key} }

func basic(user, password string) headers {
	return headers{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}
}

// safe are headers of each answer, and what they contain.
var safe = map[string]string{
	"Content-Security-Policy": "frame-ancestors 'none'", "X-Frame-Options": "DENY",
	"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
	"Cross-Origin-Resource-Policy": "same-origin",
}

// Who may look: people on the same machine, or whoever has the key. No page of another site may, and nobody may write.
func TestOnlyThoseGetAnAnswerWhoMayLook(t *testing.T) {
	for _, tt := range []struct {
		name, key, method, host, path string
		headers                       headers
		want                          int
	}{
		{"the page by loopback name", "", "GET", "localhost:8090", "/", nil, 200},
		{"the page by loopback address", "", "GET", "127.0.0.1:8090", "/", nil, 200},
		{"the page by an address of IPv6", "", "GET", "[::1]:8090", "/", nil, 200},
		{"the page by an address without a port", "", "GET", "10.0.0.7", "/", nil, 200},
		{"the page by a name below localhost", "", "GET", "app.localhost:8090", "/", nil, 200},
		{"the name of another host, which means this address", "", "GET", "evil.example:8090", "/", nil, 421},
		{"such a name asks for the state", "", "GET", "evil.example", "/status", nil, 421},
		{"a name that only begins as localhost", "", "GET", "localhost.evil.example", "/status", nil, 421},
		{"a name that only ends as localhost", "", "GET", "evillocalhost:8090", "/status", nil, 421},
		{"no host", "", "GET", "", "/status", nil, 421},

		{"a script of the page", "", "GET", "localhost", "/status", headers{"Sec-Fetch-Site": "same-origin"}, 200},
		{"an address that was typed", "", "GET", "localhost", "/status", headers{"Sec-Fetch-Site": "none"}, 200},
		{"a script of another site", "", "GET", "localhost", "/status", headers{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a script of another port", "", "GET", "localhost", "/status", headers{"Sec-Fetch-Site": "same-site"}, 403},
		{
			"a script of another site, in an old browser", "", "GET", "localhost:8090", "/status",
			headers{"Origin": "http://evil.example"},
			403,
		},
		{
			"a script of the page, in an old browser", "", "GET", "localhost:8090", "/status",
			headers{"Origin": "http://localhost:8090"},
			200,
		},
		{
			"a link of another site to the page", "", "GET", "localhost", "/",
			headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
			200,
		},
		{
			"a link of another site to documents", "", "GET", "localhost", "/letters?unit=mailer",
			headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
			403,
		},
		{
			"a frame of another site", "", "GET", "localhost", "/",
			headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
			403,
		},
		{
			"an image of another site", "", "GET", "localhost", "/icon.svg",
			headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
			403,
		},

		{"a form of another site", "", "POST", "localhost", "/status", headers{"Origin": "http://evil.example"}, 403},
		{"a write", "", "POST", "localhost", "/status", nil, 405},
		{"a delete", "", "DELETE", "localhost", "/", nil, 405},
		{"a question for the methods", "", "OPTIONS", "localhost", "/status", nil, 405},
		{"the headers alone", "", "HEAD", "localhost", "/", nil, 200},
		{"a path that was guessed", "", "GET", "localhost", "/admin", nil, 404},
		{"a path out of the page", "", "GET", "localhost", "/%2e%2e%2fdoc.go", nil, 404},
		{"a file that is not of the page", "", "GET", "localhost", "/doc.go", nil, 404},
		{"metrics of a dashboard without any", "", "GET", "localhost", "/metrics", nil, 404},

		{"without the key", "secret", "GET", "localhost", "/status", nil, 401},
		{"the page without the key", "secret", "GET", "localhost", "/", nil, 401},
		{"events without the key", "secret", "GET", "localhost", "/events", nil, 401},
		{"letters without the key", "secret", "GET", "localhost", "/letters?unit=mailer", nil, 401},
		{"an empty key", "secret", "GET", "localhost", "/status", bearer(""), 401},
		{"another key", "secret", "GET", "localhost", "/status", bearer("secrets"), 401},
		{"the key as a token", "secret", "GET", "localhost", "/status", bearer("secret"), 200},
		{"the key as a password", "secret", "GET", "localhost", "/", basic("ada", "secret"), 200},
		{"the key as a name", "secret", "GET", "localhost", "/", basic("secret", "ada"), 401},
		{"any name with the key", "secret", "GET", "ops.example", "/status", bearer("secret"), 200},
		{
			"the password that a browser knows, for another site", "secret", "GET", "localhost", "/status",
			headers{"Authorization": "Bearer secret", "Sec-Fetch-Site": "cross-site"},
			403,
		},
		{"health without the key", "secret", "GET", "10.0.0.7:8090", "/healthz", nil, 200},
		{"readiness without the key", "secret", "GET", "10.0.0.7:8090", "/readyz", nil, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := New(Options{Key: tt.key})
			r := httptest.NewRequest(tt.method, tt.path, nil)
			r.Host = tt.host
			for name, value := range tt.headers {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Fatalf("%d %s, want %d", w.Code, w.Body.String(), tt.want)
			}
			for name, want := range safe {
				if got := w.Header().Get(name); !strings.Contains(got, want) {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if w.Header().Get("Set-Cookie") != "" || w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("the answer opens the dashboard to others: %v", w.Header())
			}
		})
	}
}

// Who may act: those who may look, if the dashboard allows writes, and no page of another site in their browser.
func TestOnlyThoseActWhoMayAct(t *testing.T) {
	json := "application/json"
	for _, tt := range []struct {
		name, key, method, kind string
		reads                   bool
		headers                 headers
		want                    int
	}{
		{"a script of the page", "", "POST", json, false, headers{"Sec-Fetch-Site": "same-origin"}, 204},
		{"a program", "", "POST", json, false, nil, 204},
		{"a type with a parameter", "", "PUT", "application/json; charset=utf-8", false, nil, 204},
		{"lines", "", "POST", "application/x-ndjson", false, nil, 204},
		{"a dashboard that only reads", "", "POST", json, true, nil, 405},
		{"a script of another site", "", "POST", json, false, headers{"Sec-Fetch-Site": "cross-site"}, 403},
		{
			"a script of another site, in an old browser", "", "POST", json, false,
			headers{"Origin": "http://evil.example"},
			403,
		},
		{
			"a page of no site, such as a file", "", "POST", json, false,
			headers{"Origin": "null"},
			403,
		},
		{"a form", "", "POST", "application/x-www-form-urlencoded", false, nil, 415},
		{"a form with files", "", "POST", "multipart/form-data; boundary=x", false, nil, 415},
		{"a form that looks like JSON", "", "POST", "text/plain", false, nil, 415},
		{"a beacon without a type", "", "POST", "", false, nil, 415},
		{"a delete without a type", "", "DELETE", "", false, nil, 415},
		{"the question of a browser before such a request", "", "OPTIONS", "", false, nil, 415},
		{"without the key", "secret", "POST", json, false, nil, 401},
		{"with the key", "secret", "POST", json, false, bearer("secret"), 204},
		{
			"the password that a browser knows, for another site", "secret", "POST", json, false,
			headers{"Authorization": "Bearer secret", "Sec-Fetch-Site": "cross-site"},
			403,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := New(Options{Key: tt.key, Write: !tt.reads, Explorer: http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/item" {
						w.WriteHeader(http.StatusNoContent)
					}
				})})
			r := httptest.NewRequest(tt.method, "/store/item", strings.NewReader("{}"))
			r.Host = "localhost:8090"
			r.Header.Set("Content-Type", tt.kind)
			for name, value := range tt.headers {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("%d %s, want %d", w.Code, w.Body.String(), tt.want)
			}
		})
	}
}

// A page loads nothing from another host, and has no script, style or listener in its markup, which the policy forbids.
func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	d := New(Options{})
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/app.js": "text/javascript; charset=utf-8",
		"/unit.js": "text/javascript; charset=utf-8", "/style.css": "text/css; charset=utf-8",
		"/icon.svg": "image/svg+xml",
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = "localhost"
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		text := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Header().Get("Content-Type"), kind)
		}
		for _, foreign := range []string{
			"http://", "https://", "//cdn", "<style", "style=\"", "onclick", "innerHTML", "eval(",
		} {
			if strings.Contains(text, foreign) {
				t.Errorf("%s contains %s", path, foreign)
			}
		}
	}
}
