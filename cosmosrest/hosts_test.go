package cosmosrest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// status is what a server answers to a signed request to a host.
func statusAt(t *testing.T, s *Server, key, host string) (status int, message string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/dbs", nil)
	r.Host = host
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Authorization", sign(t, key, r))
	a := httptest.NewRecorder()
	s.ServeHTTP(a, r)
	var body struct{ Message string }
	if err := json.Unmarshal(a.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	return a.Code, body.Message
}

// A page of evil.example may have that name point to 127.0.0.1: then the browser takes a
// local server for the page's own, and anybody can sign with the emulator's key.
func TestAServerWithTheEmulatorsKeyAnswersToItsOwnNamesOnly(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	own := testKey("own")
	for _, c := range []struct {
		name    string
		options Options
		key     string
		checked bool
	}{
		{"no key", Options{}, wellKnownKey, true},
		{"the emulator's", Options{Keys: Keys{Primary: wellKnownKey}}, wellKnownKey, true},
		{"the emulator's as the second", Options{Keys: Keys{Primary: own, Secondary: wellKnownKey}}, own, true},
		{"the emulator's to read", Options{Keys: Keys{Primary: own, PrimaryReadOnly: wellKnownKey}}, own, true},
		{"tokens that anybody can make", Options{Keys: Keys{Primary: own}, Tokens: &Tokens{Insecure: true}}, own, true},
		{"an own key", Options{Keys: Keys{Primary: own}}, own, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Hosts = []string{"Cosmos.Internal", "db", "192.0.2.7", "2001:db8::7"}
			s, err := New(db, c.options)
			if err != nil {
				t.Fatal(err)
			}
			for _, host := range []string{
				"localhost", "localhost:8081", "LOCALHOST.:8081", "app.localhost:8081", "127.0.0.1:8081", "127.8.8.8",
				"[::1]:8081", "[::1]", "",
				"cosmos.internal:8081", "COSMOS.INTERNAL", "db", "db:1", "192.0.2.7:8081", "[2001:db8::7]:8081",
			} {
				if status, message := statusAt(t, s, c.key, host); status != http.StatusOK {
					t.Errorf("host %q: %d %s, want 200", host, status, message)
				}
			}
			for _, host := range []string{
				"evil.example", "evil.example:8081", "localhost.evil.example", "evil-localhost:8081",
				"127.0.0.1.evil.example:8081", "internal", "x.cosmos.internal", "192.0.2.8", "[2001:db8::8]:8081",
				"0.0.0.0:8081",
			} {
				status, message := statusAt(t, s, c.key, host)
				if c.checked && (status != http.StatusForbidden || !strings.Contains(message, "--allow-host") ||
					!strings.Contains(message, host)) {
					t.Errorf("host %q: %d %s, want 403 that names the host and --allow-host", host, status, message)
				}
				if !c.checked && status != http.StatusOK {
					t.Errorf("host %q: %d %s, want 200: no page has the key", host, status, message)
				}
			}
		})
	}
}

func TestWrongHostsAreNamed(t *testing.T) {
	for _, name := range []string{"", "cosmos:8081", "https://cosmos", "*", "*.internal", "cosmos/", "a b"} {
		_, err := New(nil, Options{Hosts: []string{name}})
		if err == nil || !strings.Contains(err.Error(), "want a host name or an IP address") {
			t.Errorf("host %q: %v, want an error that says what is right", name, err)
		}
	}
}
