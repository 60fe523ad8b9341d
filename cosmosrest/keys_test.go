package cosmosrest

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// testKey is the base64 of 64 times the same letter.
func testKey(letter string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 64)))
}

func TestAuthorizationHeaders(t *testing.T) {
	w, _ := newContainer(t, Options{})
	request := func() *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/dbs/db/colls/c", nil)
		r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
		return r
	}
	escaped := sign(t, wellKnownKey, request())
	raw, err := url.QueryUnescape(escaped)
	if err != nil {
		t.Fatal(err)
	}
	lower := strings.NewReplacer("%3D", "%3d", "%26", "%26", "%2F", "%2f", "%2B", "%2b").Replace(escaped)
	for _, c := range []struct {
		name, header string
		status       int
		sub, message string
	}{
		{"escaped", escaped, 200, "", ""},
		{"escaped in lower case", lower, 200, "", ""},
		{"as it is", raw, 200, "", ""},
		{"none", "", 401, "0", "Required Header authorization is missing"},
		{
			"another key", sign(t, testKey("x"), request()), 401, "0",
			"Server used the following payload to sign: 'get\ncolls\ndbs/db/colls/c\n",
		},
		{"signature missing", "type=master&ver=1.0", 401, "5001", "wrong format"},
		{"signature empty", "type=master&ver=1.0&sig=", 401, "5001", "wrong format"},
		{"other version", "type=master&ver=2.0&sig=x", 401, "5001", "wrong format"},
		{"bad escape", "type%ZZmaster", 401, "5001", "wrong format"},
		{"nonsense", "Bearer abc", 401, "5001", "wrong format"},
		{"resource token", "type=resource&ver=1&sig=x;y", 401, "0", "not issued with a key of this account"},
		{"empty resource token", "type=resource&ver=1.0&sig=;", 401, "0", "not issued with a key of this account"},
		{"other type", "type=other&ver=1.0&sig=x;y", 401, "5001", `of type "other"`},
		{"token", "type=aad&ver=1.0&sig=a.b.c", 401, "5002", "takes no Entra tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"Authorization": c.header}, "")
			if c.status == http.StatusOK {
				got.want(t, c.status)
				return
			}
			message := got.refused(t, c.status, c.sub, "Unauthorized")
			if !strings.Contains(message, c.message) || strings.Contains(message, "sig=") && c.sub != "5001" {
				t.Errorf("message %q: want %q in it, and no signature", message, c.message)
			}
		})
	}
}

func TestTheDateHeaderServesForXMsDate(t *testing.T) {
	w, _ := newContainer(t, Options{})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/dbs/db/colls/c", nil)
	date := time.Now().UTC().Format(http.TimeFormat)
	r.Header.Set("x-ms-date", date)
	signature := sign(t, wellKnownKey, r)
	w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"x-ms-date": "", "Date": date, "Authorization": signature},
		"").want(t, http.StatusOK)
	w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"x-ms-date": "", "Authorization": signature}, "").refused(t,
		http.StatusUnauthorized, "0", "Unauthorized")
}

func TestEveryKeyOpensAndReadOnlyKeysOnlyRead(t *testing.T) {
	keys := Keys{
		Primary: testKey("a"), Secondary: testKey("b"), PrimaryReadOnly: testKey("c"),
		SecondaryReadOnly: testKey("d"),
	}
	w := newWorld(t, Options{Keys: keys})
	w.key = keys.Primary
	w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, nil)
	for _, c := range []struct {
		key   string
		write bool
	}{{keys.Primary, true}, {keys.Secondary, true}, {keys.PrimaryReadOnly, false}, {keys.SecondaryReadOnly, false}} {
		w.key = c.key
		w.do(t, "GET", "/dbs/db/colls/c", nil, "").want(t, http.StatusOK)
		for _, write := range []answer{
			w.do(t, "POST", "/dbs", nil, `{"id":"`+c.key[:4]+`"}`),
			w.do(t, "POST", "/dbs/db/colls/c/docs", map[string]string{"x-ms-documentdb-partitionkey": `["p"]`},
				`{"id":"`+c.key[:4]+`","pk":"p"}`),
		} {
			if c.write {
				write.want(t, http.StatusCreated)
				continue
			}
			write.refused(t, http.StatusForbidden, "0", "Forbidden")
		}
	}
	w.key = wellKnownKey
	w.do(t, "GET", "/dbs/db/colls/c", nil, "").refused(t, http.StatusUnauthorized, "0", "Unauthorized")
}

// Anybody knows the emulator's key, so it opens a server only where no other key was given.
func TestTheEmulatorsKeyOpensNoServerWithAnother(t *testing.T) {
	own := testKey("a")
	for name, keys := range map[string]Keys{
		"a second key": {Secondary: own}, "a key to read": {PrimaryReadOnly: own},
		"a second key to read": {SecondaryReadOnly: own},
	} {
		w := newWorld(t, Options{Keys: keys})
		if a := w.do(t, "GET", "/dbs", nil, ""); a.status != http.StatusUnauthorized {
			t.Errorf("with %s the emulator's is answered %d, want 401", name, a.status)
		}
		w.key = own
		w.do(t, "GET", "/dbs", nil, "").want(t, http.StatusOK)
	}
}

func TestBadKeysAreNamed(t *testing.T) {
	for want, keys := range map[string]Keys{
		"primary key is not base64":                             {Primary: "not base64"},
		"secondary key is the base64 of 3 bytes: want at least": {Primary: testKey("a"), Secondary: "YWJj"},
		"primary read-only key is not base64":                   {PrimaryReadOnly: "%"},
		"secondary read-only key is not base64":                 {SecondaryReadOnly: "%"},
		"primary read-only key may also write, as another key": {
			Primary:         testKey("a"),
			PrimaryReadOnly: testKey("a"),
		},
		"secondary read-only key may also write, as another key:": {
			Secondary:         testKey("a"),
			SecondaryReadOnly: testKey("a"),
		},
	} {
		_, err := New(nil, Options{Keys: keys})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v: want %q", err, want)
		}
	}
}
