package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// issuerKey is a key with which an issuer signs.
type issuerKey struct {
	id      string
	private ed25519.PrivateKey
}

func newIssuerKey(t *testing.T, id string) issuerKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return issuerKey{id, private}
}

// keySetOf is a JSON Web Key Set.
func keySetOf(t *testing.T, keys ...issuerKey) []byte {
	t.Helper()
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	for _, k := range keys {
		x := base64.RawURLEncoding.EncodeToString(k.private.Public().(ed25519.PublicKey))
		set.Keys = append(set.Keys, map[string]string{
			"kid": k.id, "use": "sig", "kty": "OKP", "crv": "Ed25519",
			"x": x,
		})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// trusting is an authority for the tokens of one issuer, whose key set is at an address.
func trusting(t *testing.T, jwks string) *Authority {
	t.Helper()
	a, err := New([]Key{{Text: emulatorKey, Write: true}}, &Tokens{
		Issuer: "issuer", Audiences: []string{"audience"}, JWKS: jwks,
		Roles: map[string][]Grant{"alice": {{Actions: []string{readerRole}}}},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask authenticates a request with a token that the key signed, and returns the sub-status of its refusal; 0 is none.
func (k issuerKey) ask(t *testing.T, a *Authority) int {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": "issuer", "aud": "audience",
		"exp": time.Now().Add(time.Hour).Unix(), "oid": "alice",
	})
	token.Header["kid"] = k.id
	text, err := token.SignedString(k.private)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/dbs", nil)
	r.Header.Set("Authorization", "type=aad&ver=1.0&sig="+text)
	who, err := a.Authenticate(t.Context(), new(wire.NewRequest(httptest.NewRecorder(), r)))
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Sub
	}
	if err != nil || who.id != "alice" {
		t.Fatalf("%+v, %v: want alice", who, err)
	}
	return 0
}

func TestTheKeySetBehindAnAddressIsReadAgainForNewKeys(t *testing.T) {
	first, second, third := newIssuerKey(t, "first"), newIssuerKey(t, "second"), newIssuerKey(t, "third")
	var set atomic.Pointer[[]byte]
	var reads atomic.Int32
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reads.Add(1)
		_, _ = w.Write(*set.Load())
	}))
	t.Cleanup(web.Close)
	set.Store(new(keySetOf(t, first)))
	a := trusting(t, web.URL)
	for _, step := range []struct {
		name  string
		key   issuerKey
		sub   int
		reads int32
	}{
		{"the first token", first, 0, 1},
		{"another", first, 0, 1},
		{"a new key too early", second, subTokenUnknownKey, 1},
		{"a new key", second, 0, 2},
		{"the old key", first, 0, 2},
		{"a broken set", third, subTokenUnknownKey, 3},
		{"the keys of before", second, 0, 3},
	} {
		switch step.name {
		case "a new key too early":
			set.Store(new(keySetOf(t, first, second)))
		case "a new key":
			a.tokens.keys.next = time.Now()
		case "a broken set":
			set.Store(new([]byte("broken")))
			a.tokens.keys.next = time.Now()
		}
		if sub := step.key.ask(t, a); sub != step.sub || reads.Load() != step.reads {
			t.Errorf("%s: refused with %d after %d reads of the key set, want %d after %d, once within %v", step.name,
				sub, reads.Load(), step.sub, step.reads, keySetFresh)
		}
	}
}

// The address of the key set is part of the trust: who could lead elsewhere from there could sign tokens.
func TestTheKeySetIsReadFromItsAddressOnly(t *testing.T) {
	first := newIssuerKey(t, "first")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(keySetOf(t, first))
	}))
	t.Cleanup(elsewhere.Close)
	leading := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	t.Cleanup(leading.Close)
	if sub := first.ask(t, trusting(t, elsewhere.URL)); sub != 0 {
		t.Fatalf("the key set itself: refused with %d", sub)
	}
	if sub := first.ask(t, trusting(t, leading.URL)); sub != subTokenUnknownKey {
		t.Errorf("a key set elsewhere: refused with %d, want %d", sub, subTokenUnknownKey)
	}
}

// A client that goes away while the server reads the key set for it does no harm to others.
func TestTheKeySetIsReadToItsEnd(t *testing.T) {
	first := newIssuerKey(t, "first")
	asked, answered := make(chan struct{}), make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answered
		_, _ = w.Write(keySetOf(t, first))
	}))
	t.Cleanup(web.Close)
	a := trusting(t, web.URL)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := a.tokens.keys.findKey(ctx, "unknown", "EdDSA", a.tokens.log)
		gone <- err
	}()
	<-asked
	leave()
	close(answered)
	if err := <-gone; err == nil {
		t.Error("there is a key that nobody has")
	}
	if sub := first.ask(t, a); sub != 0 {
		t.Errorf("the next request is refused with %d", sub)
	}
}
