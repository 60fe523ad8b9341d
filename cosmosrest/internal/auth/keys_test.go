package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// emulatorKey is the well-known one.
const emulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

func TestASignatureCoversVerbTypeLinkAndDate(t *testing.T) {
	ring, err := newKeyring([]Key{{Text: emulatorKey, Write: true}})
	if err != nil {
		t.Fatal(err)
	}
	const date = "Thu, 27 Apr 2017 00:51:12 GMT"
	right := wire.Target{Kind: "dbs", DB: "ToDoList", Link: "dbs/ToDoList"}
	const signature = "mM0rMK/7o1MZhQwDitGRoGisPRPx09os/86Jk0YwquY=" // computed apart from this package
	for _, c := range []struct {
		name      string
		method    string
		target    wire.Target
		date      string
		signature string
		want      bool
	}{
		{"as signed", "GET", right, date, signature, true},
		{"the case of verb and date is left out", "get", right, strings.ToUpper(date), signature, true},
		{"another verb", "PUT", right, date, signature, false},
		{
			"another type", "GET",
			wire.Target{Kind: "colls", DB: "ToDoList", Link: "dbs/ToDoList"},
			date, signature,
			false,
		},
		{
			"the case of the link counts", "GET",
			wire.Target{Kind: "dbs", DB: "todolist", Link: "dbs/todolist"},
			date,
			signature, false,
		},
		{"another date", "GET", right, "Thu, 27 Apr 2017 00:51:13 GMT", signature, false},
		{"no base64", "GET", right, date, "!" + signature[1:], false},
		{"cut short", "GET", right, date, signature[:40], false},
		{"empty", "GET", right, date, "", false},
	} {
		if _, got := ring.findSigner(newSigner(ring.keys), c.method, c.target, c.date, c.signature); got != c.want {
			t.Errorf("%s: accepted %v, want %v", c.name, got, c.want)
		}
	}
}

func TestClientsSignLinksInSeveralForms(t *testing.T) {
	const date = "Thu, 27 Apr 2017 00:51:12 GMT"
	ring, err := newKeyring([]Key{{Text: emulatorKey, Write: true}})
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
		to, err := wire.ParsePath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		signer := newSigner(ring.keys)
		signer.macs[0].Write(signer.compose("GET", to.Kind, c.link, date))
		signature := base64.StdEncoding.EncodeToString(signer.macs[0].Sum(nil))
		if _, got := ring.findSigner(signer, "GET", to, date, signature); got != c.want {
			t.Errorf("%s signed as %q: accepted %v, want %v", c.path, c.link, got, c.want)
		}
	}
}

func TestARequestIsGoodForFifteenMinutes(t *testing.T) {
	var s signer
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
		if err := s.checkDate(c.date, now); err != nil {
			e, _ := errors.AsType[*wire.Error](err)
			status = e.Status
		}
		if status != c.status {
			t.Errorf("date %q: status %d, want %d", c.date, status, c.status)
		}
	}
	if got := s.checkDate("Fri, 02 Jan 2026 02:00:00 GMT", now).Error(); !strings.Contains(got,
		"token expiry time: Fri, 02 Jan 2026 02:15:00 GMT, current server time: Fri, 02 Jan 2026 03:04:05 GMT") {
		t.Errorf("message %q: want it to tell when the token was valid, and the time", got)
	}
	for date, want := range map[string]string{
		"Fri, 02 Jan 2026 02:00:00 GMT": "the date of the request is too old: want a date within 15 minutes",
		"Thu, 01 Jan 2099 00:00:00 GMT": "the date of the request is in the future: want a date within 15 minutes",
	} {
		if got := s.checkDate(date, now).Error(); !strings.Contains(got, want) {
			t.Errorf("date %s: message %q, want %q in it", date, got, want)
		}
	}
}

// Some clients encode the whole header, and some all but the signature.
func TestAPlusInASignatureIsNoBlank(t *testing.T) {
	for _, text := range []string{
		"type=master&ver=1.0&sig=a+b/c=", "type%3Dmaster%26ver%3D1.0%26sig%3Da+b/c=",
		"type%3Dmaster%26ver%3D1.0%26sig%3Da%2Bb%2Fc%3D",
	} {
		if c, ok := parseCredential(text); !ok || c.signature != "a+b/c=" {
			t.Errorf("%s: signature %q", text, c.signature)
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
	a, err := New([]Key{{Text: emulatorKey, Write: true}}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequestWithContext(b.Context(), "GET", "/dbs/db/colls/orders/docs/0123456789", nil)
	date := time.Now().UTC().Format(http.TimeFormat)
	r.Header.Set("x-ms-date", date)
	in := new(wire.NewRequest(httptest.NewRecorder(), r))
	if err := in.Parse(); err != nil {
		b.Fatal(err)
	}
	s := newSigner(a.keys.keys)
	s.macs[0].Write(s.compose("GET", in.Target.Kind, in.Target.Link, date))
	r.Header.Set("Authorization", "type=master&ver=1.0&sig="+base64.StdEncoding.EncodeToString(s.macs[0].Sum(nil)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
}
