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

func TestASignatureCoversVerbTypeLinkAndDate(t *testing.T) {
	ring, err := newKeyring(Keys{})
	if err != nil {
		t.Fatal(err)
	}
	const date = "Thu, 27 Apr 2017 00:51:12 GMT"
	right := target{kind: "dbs", db: "ToDoList", link: "dbs/ToDoList"}
	const signature = "mM0rMK/7o1MZhQwDitGRoGisPRPx09os/86Jk0YwquY=" // computed apart from this package
	for _, c := range []struct {
		name      string
		method    string
		target    target
		date      string
		signature string
		want      bool
	}{
		{"as signed", "GET", right, date, signature, true},
		{"the case of verb and date is left out", "get", right, strings.ToUpper(date), signature, true},
		{"another verb", "PUT", right, date, signature, false},
		{"another type", "GET", target{kind: "colls", db: "ToDoList", link: "dbs/ToDoList"}, date, signature, false},
		{"the case of the link counts", "GET", target{kind: "dbs", db: "todolist", link: "dbs/todolist"}, date, signature, false},
		{"another date", "GET", right, "Thu, 27 Apr 2017 00:51:13 GMT", signature, false},
		{"no base64", "GET", right, date, "!" + signature[1:], false},
		{"cut short", "GET", right, date, signature[:40], false},
		{"empty", "GET", right, date, "", false},
	} {
		if _, got := ring.signed(c.method, c.target, c.date, c.signature); got != c.want {
			t.Errorf("%s: accepted %v, want %v", c.name, got, c.want)
		}
	}
}

func TestClientsSignLinksInSeveralForms(t *testing.T) {
	const date = "Thu, 27 Apr 2017 00:51:12 GMT"
	ring, err := newKeyring(Keys{Primary: testKey("k")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, link string
		want       bool
	}{
		{"/dbs/My%20Db/colls/c%2Fd/docs/", "dbs/My Db/colls/c/d", true},
		{"/dbs/AbCdAA==/colls/AbCdAJx1yAE=/pkranges/", "abcdajx1yae=", true},
		{"/dbs/AbCdAA==/colls/AbCdAJx1yAE=/pkranges", "dbs/AbCdAA==/colls/AbCdAJx1yAE=", true},
		{"/dbs/AbCdAA==/colls", "abcdaa==", true},
		{"/dbs/-bCdAA==", "-bcdaa==", true},
		{"/dbs/named/colls/orders/docs", "orders", false},
		{"/offers/OFF1/", "off1", true},
		{"/offers/OFF1", "OFF1", true},
		{"/offers/OFF1", "offers/OFF1", true},
		{"/offers/OFF1", "", false},
		{"/offers", "", true},
		{"/dbs", "", true},
		{"/", "", true},
	} {
		to, err := parsePath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		signer := newSigner(ring.keys)
		signer.macs[0].Write(signer.compose("GET", to.kind, c.link, date))
		signature := base64.StdEncoding.EncodeToString(signer.macs[0].Sum(nil))
		if _, got := ring.signed("GET", to, date, signature); got != c.want {
			t.Errorf("%s signed as %q: accepted %v, want %v", c.path, c.link, got, c.want)
		}
	}
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
		{"none", "", 401, "5000", "Required Header authorization is missing"},
		{"another key", sign(t, testKey("x"), request()), 401, "0", "Server used the following payload to sign: 'get\ncolls\ndbs/db/colls/c\n"},
		{"signature missing", "type=master&ver=1.0", 401, "5001", "wrong format"},
		{"signature empty", "type=master&ver=1.0&sig=", 401, "5001", "wrong format"},
		{"other version", "type=master&ver=2.0&sig=x", 401, "5001", "wrong format"},
		{"bad escape", "type%ZZmaster", 401, "5001", "wrong format"},
		{"nonsense", "Bearer abc", 401, "5001", "wrong format"},
		{"resource token", "type=resource&ver=1&sig=x;y", 401, "5001", "wrong format"},
		{"other type", "type=resource&ver=1.0&sig=x;y", 401, "5001", `of type "resource"`},
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

func TestARequestIsGoodForFifteenMinutes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		date   string
		status int
	}{
		{"Fri, 02 Jan 2026 03:04:05 GMT", 0},
		{"Fri, 02 Jan 2026 03:04:05 UTC", 0},
		{"Fri, 02 Jan 2026 02:49:05 GMT", 0},
		{"Fri, 02 Jan 2026 03:19:05 GMT", 0},
		{"Fri, 02 Jan 2026 02:49:04 GMT", http.StatusForbidden},
		{"Fri, 02 Jan 2026 03:19:06 GMT", http.StatusForbidden},
		{"", http.StatusUnauthorized},
		{"2026-01-02T03:04:05Z", http.StatusUnauthorized},
	} {
		status := 0
		if err := checkDate(c.date, now); err != nil {
			status = faultOf(err).status
		}
		if status != c.status {
			t.Errorf("date %q: status %d, want %d", c.date, status, c.status)
		}
	}
	if got := checkDate("Fri, 02 Jan 2026 02:00:00 GMT", now).Error(); !strings.Contains(got, "token expiry time: Fri, 02 Jan 2026 02:15:00 GMT, current server time: Fri, 02 Jan 2026 03:04:05 GMT") {
		t.Errorf("message %q: want it to tell when the token was valid, and the time", got)
	}
}

func TestTheDateHeaderServesForXMsDate(t *testing.T) {
	w, _ := newContainer(t, Options{})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/dbs/db/colls/c", nil)
	date := time.Now().UTC().Format(http.TimeFormat)
	r.Header.Set("x-ms-date", date)
	signature := sign(t, wellKnownKey, r)
	w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"x-ms-date": "", "Date": date, "Authorization": signature}, "").want(t, http.StatusOK)
	w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"x-ms-date": "", "Authorization": signature}, "").refused(t, http.StatusUnauthorized, "0", "Unauthorized")
}

func TestEveryKeyOpensAndReadOnlyKeysOnlyRead(t *testing.T) {
	keys := Keys{Primary: testKey("a"), Secondary: testKey("b"), PrimaryReadOnly: testKey("c"), SecondaryReadOnly: testKey("d")}
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
			w.do(t, "POST", "/dbs/db/colls/c/docs", map[string]string{"x-ms-documentdb-partitionkey": `["p"]`}, `{"id":"`+c.key[:4]+`","pk":"p"}`),
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

func TestBadKeysAreNamed(t *testing.T) {
	for want, keys := range map[string]Keys{
		"primary key is not base64":                               {Primary: "not base64"},
		"secondary key is the base64 of 3 bytes: want at least":   {Primary: testKey("a"), Secondary: "YWJj"},
		"primary read-only key is not base64":                     {PrimaryReadOnly: "%"},
		"secondary read-only key is not base64":                   {SecondaryReadOnly: "%"},
		"primary read-only key may also write, as another key":    {Primary: testKey("a"), PrimaryReadOnly: testKey("a")},
		"secondary read-only key may also write, as another key:": {Secondary: testKey("a"), SecondaryReadOnly: testKey("a")},
	} {
		_, err := New(nil, Options{Keys: keys})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v: want %q", err, want)
		}
	}
}

func FuzzCredential(f *testing.F) {
	f.Add("type%3Dmaster%26ver%3D1.0%26sig%3DmM0rMK%2F7o1M%3D")
	f.Add("type%3dmaster%26ver%3d1.0%26sig%3dmM0rMK%2f7o1M%3d")
	f.Add("type=aad&ver=1.0&sig=a.b.c")
	f.Add("type=&ver=1.0&sig=")
	f.Add("%")
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := parseCredential(text)
		if !ok {
			return
		}
		again, ok := parseCredential(url.PathEscape("type=" + c.kind + "&ver=1.0&sig=" + c.signature))
		if !ok || again != c {
			t.Errorf("%q is %+v, and escaped it is %+v, %v", text, c, again, ok)
		}
	})
}

func BenchmarkSignature(b *testing.B) {
	ring, err := newKeyring(Keys{})
	if err != nil {
		b.Fatal(err)
	}
	to, err := parsePath("/dbs/db/colls/orders/docs/0123456789")
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequestWithContext(b.Context(), "GET", "/dbs/db/colls/orders/docs/0123456789", nil)
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Authorization", sign(b, wellKnownKey, r))
	s := &Server{keys: ring}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.authenticate(&call{r: r, target: to, s: s}); err != nil {
			b.Fatal(err)
		}
	}
}
