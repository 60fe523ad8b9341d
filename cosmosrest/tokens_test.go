package cosmosrest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	testIssuer   = "https://login.example/tenant/v2.0"
	testAudience = "https://cosmos.azure.com"
	alice        = "11111111-1111-1111-1111-111111111111"
)

// pair is a key pair with which an issuer signs.
type pair struct {
	id      string
	method  jwt.SigningMethod
	private crypto.Signer
}

func newPair(t testing.TB, id string, method jwt.SigningMethod) pair {
	t.Helper()
	var key crypto.Signer
	var err error
	switch method.Alg()[:2] {
	case "RS", "PS":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES":
		key, err = ecdsa.GenerateKey(map[string]elliptic.Curve{
			"ES256": elliptic.P256(), "ES384": elliptic.P384(),
			"ES512": elliptic.P521(),
		}[method.Alg()], rand.Reader)
	default:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pair{id, method, key}
}

// web is the pair's public key as it is in a key set.
func (p pair) web(t testing.TB) map[string]string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString
	w := map[string]string{"kid": p.id, "use": "sig"}
	switch key := p.private.Public().(type) {
	case *rsa.PublicKey:
		w["kty"], w["n"], w["e"] = "RSA", text(key.N.Bytes()), text(big.NewInt(int64(key.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := len(point) / 2
		w["kty"], w["crv"], w["x"], w["y"] = "EC", key.Curve.Params().Name, text(point[1:1+half]), text(point[1+half:])
	case ed25519.PublicKey:
		w["kty"], w["crv"], w["x"] = "OKP", "Ed25519", text(key)
	}
	return w
}

// keySetOf is a JSON Web Key Set.
func keySetOf(t testing.TB, pairs ...pair) []byte {
	t.Helper()
	set := map[string][]map[string]string{"keys": {{"kty": "unknown"}, {"kty": "RSA", "use": "enc"}}}
	for _, p := range pairs {
		set["keys"] = append(set["keys"], p.web(t))
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// writeFile is a file with this text.
func writeFile(t testing.TB, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// bearer is the authorization header with a token of these claims, besides good ones.
func (p pair) bearer(t testing.TB, claims map[string]any) string {
	t.Helper()
	all := jwt.MapClaims{"iss": testIssuer, "aud": testAudience, "exp": time.Now().Add(time.Hour).Unix(), "oid": alice}
	for name, value := range claims {
		all[name] = value
		if value == nil {
			delete(all, name)
		}
	}
	token := jwt.NewWithClaims(p.method, all)
	if p.id != "" {
		token.Header["kid"] = p.id
	}
	text, err := token.SignedString(p.private)
	if err != nil {
		t.Fatal(err)
	}
	return "type=aad&ver=1.0&sig=" + text
}

// contributor lets alice do everything.
var contributor = Roles{alice: {{Actions: []string{"Cosmos DB Built-in Data Contributor"}}}}

func tokensOf(t testing.TB, roles Roles, pairs ...pair) *Tokens {
	t.Helper()
	return &Tokens{
		Issuer: testIssuer, Audiences: []string{"https://other.example", testAudience}, Roles: roles,
		JWKS: writeFile(t, "jwks.json", keySetOf(t, pairs...)),
	}
}

func TestTokensOfEveryKind(t *testing.T) {
	for _, method := range []jwt.SigningMethod{
		jwt.SigningMethodRS256, jwt.SigningMethodPS512,
		jwt.SigningMethodES256, jwt.SigningMethodES384, jwt.SigningMethodES512, jwt.SigningMethodEdDSA,
	} {
		t.Run(method.Alg(), func(t *testing.T) {
			right, wrong := newPair(t, "right", method), newPair(t, "right", method)
			w, _ := newContainer(t, Options{Tokens: tokensOf(t, contributor,
				newPair(t, "other", jwt.SigningMethodES256), right)})
			get := func(bearer string) answer {
				return w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"Authorization": bearer}, "")
			}
			get(right.bearer(t, nil)).want(t, http.StatusOK)
			get(strings.NewReplacer("=", "%3d", "&", "%26").Replace(right.bearer(t, nil))).want(t, http.StatusOK)
			get(wrong.bearer(t, nil)).refused(t, http.StatusUnauthorized, "5004", "Unauthorized")
			right.id = ""
			get(right.bearer(t, nil)).want(t, http.StatusOK)
		})
	}
}

func TestTokensThatAreNotGood(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodES256)
	w, _ := newContainer(t, Options{Tokens: tokensOf(t, contributor, issuer)})
	now := time.Now()
	for _, c := range []struct {
		name   string
		claims map[string]any
		sub    string // empty is accepted
	}{
		{"good", nil, ""},
		{"expired within the leeway", map[string]any{"exp": now.Add(-time.Minute / 2).Unix()}, ""},
		{"expired", map[string]any{"exp": now.Add(-2 * time.Minute).Unix()}, "5006"},
		{"without an end", map[string]any{"exp": nil}, "5003"},
		{"early within the leeway", map[string]any{"nbf": now.Add(time.Minute / 2).Unix()}, ""},
		{"early", map[string]any{"nbf": now.Add(2 * time.Minute).Unix()}, "5005"},
		{"another issuer", map[string]any{"iss": "https://evil.example"}, "5007"},
		{"no issuer", map[string]any{"iss": nil}, "5003"},
		{"another audience", map[string]any{"aud": "https://graph.example"}, "5008"},
		{"one of several audiences", map[string]any{"aud": []string{"https://graph.example", testAudience}}, ""},
		{"no audience", map[string]any{"aud": nil}, "5003"},
		{"nobody", map[string]any{"oid": nil}, "5011"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"Authorization": issuer.bearer(t, c.claims)}, "")
			if c.sub == "" {
				got.want(t, http.StatusOK)
				return
			}
			text := got.refused(t, http.StatusUnauthorized, c.sub, "Unauthorized")
			for _, claim := range []string{"iss", "aud"} {
				if value, ok := c.claims[claim].(string); ok && (!strings.Contains(text, claim+" ") ||
					!strings.Contains(text, value)) {
					t.Errorf("a token with another %s is refused with %q: want the claim and its value", claim, text)
				}
			}
		})
	}
}

// Applications of version 1 have no object id; their subject says less than their own id.
func TestWhoseATokenIs(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodES256)
	for who, claims := range map[string]map[string]any{
		"object": {"oid": "object", "appid": "app", "sub": "subject"},
		"app":    {"oid": nil, "appid": "app", "sub": "subject"},
		"sub":    {"oid": nil, "sub": "sub"},
	} {
		w, _ := newContainer(t, Options{Tokens: tokensOf(t, Roles{who: contributor[alice]}, issuer)})
		w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"Authorization": issuer.bearer(t, claims)}, "").want(t,
			http.StatusOK)
	}
}

func TestForgedTokens(t *testing.T) {
	issuer := newPair(t, "key", jwt.SigningMethodES256)
	w, _ := newContainer(t, Options{Tokens: tokensOf(t, contributor, issuer)})
	good := strings.Split(strings.TrimPrefix(issuer.bearer(t, nil), "type=aad&ver=1.0&sig="), ".")
	text := base64.RawURLEncoding.EncodeToString
	public, err := json.Marshal(issuer.web(t))
	if err != nil {
		t.Fatal(err)
	}
	shared, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": testIssuer, "aud": testAudience,
		"oid": alice, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ token, sub string }{
		"not signed":              {text([]byte(`{"alg":"none"}`)) + "." + good[1] + ".", "5004"},
		"the public key a secret": {shared, "5004"},
		"other claims":            {good[0] + "." + text([]byte(`{"oid":"x"}`)) + "." + good[2], "5004"},
		"the key of nobody": {newPair(t, "unknown", jwt.SigningMethodES256).bearer(t,
			nil)[len("type=aad&ver=1.0&sig="):], "5200"},
		"the key of the account": {good[0] + "." + good[1] + "." + text([]byte(EmulatorKey)), "5004"},
		"no token":               {"x", "5003"},
		"dots":                   {"..", "5003"},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.do(t, "GET", "/dbs/db/colls/c", map[string]string{"Authorization": "type=aad&ver=1.0&sig=" +
				c.token}, "")
			got.refused(t, http.StatusUnauthorized, c.sub, "Unauthorized")
		})
	}
}

func TestBadTokenSettingsAreNamed(t *testing.T) {
	good := tokensOf(t, contributor, newPair(t, "key", jwt.SigningMethodES256))
	for want, change := range map[string]func(o *Tokens){
		"issuer of tokens is empty":   func(o *Tokens) { o.Issuer = "" },
		"audience of tokens is empty": func(o *Tokens) { o.Audiences = nil },
		"key set of tokens is empty":  func(o *Tokens) { o.JWKS = "" },
		"roles of tokens are empty":   func(o *Tokens) { o.Roles = nil },
		"an https address":            func(o *Tokens) { o.JWKS = "http://login.example/keys" },
		"no such file":                func(o *Tokens) { o.JWKS = filepath.Join(t.TempDir(), "missing") },
		"it is no JSON Web Key Set":   func(o *Tokens) { o.JWKS = writeFile(t, "f", []byte("x")) },
		"it has no key to check":      func(o *Tokens) { o.JWKS = writeFile(t, "f", []byte(`{"keys":[]}`)) },
		`key 1 (kid "a"): n has 8 bits`: func(o *Tokens) {
			o.JWKS = writeFile(t, "f", []byte(`{"keys":[{"kty":"RSA","kid":"a","n":"_w","e":"AQAB"}]}`))
		},
		`key 1 (kid ""): x has 1 bytes, y 0: want 32`: func(o *Tokens) {
			o.JWKS = writeFile(t, "f", []byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"_w"}]}`))
		},
		`principal "p": action is "read"`: func(o *Tokens) { o.Roles = Roles{"p": {{Actions: []string{"read"}}}} },
	} {
		changed := *good
		change(&changed)
		_, err := New(nil, Options{Tokens: &changed})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v: want %q", err, want)
		}
	}
	if _, err := New(nil, Options{Tokens: good}); err != nil {
		t.Errorf("good settings: %v", err)
	}
}

// emulated is a token as the emulator's clients make it.
func emulated(key string, exp time.Time) string {
	text := base64.RawURLEncoding.EncodeToString
	claims, _ := json.Marshal(map[string]any{"oid": alice, "exp": exp.Unix()}) // always marshals
	return "type=aad&ver=1.0&sig=" + text([]byte(`{"typ":"JWT","alg":"RS256"}`)) + "." + text(claims) + "." +
		text([]byte(key))
}

func TestTheEmulatorsTokens(t *testing.T) {
	later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for _, c := range []struct {
		name  string
		o     Options
		token string
		sub   string // empty is accepted
	}{
		{"accepted", Options{Tokens: &Tokens{Insecure: true}}, emulated(EmulatorKey, later), ""},
		{"not asked for", Options{}, emulated(EmulatorKey, later), "5002"},
		{"expired", Options{Tokens: &Tokens{Insecure: true}}, emulated(EmulatorKey, before), "5006"},
		{"of another key", Options{Tokens: &Tokens{Insecure: true}}, emulated(testKey("a"), later), "5002"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _ := newContainer(t, c.o)
			post := w.do(t, "POST", "/dbs", map[string]string{"Authorization": c.token}, `{"id":"made"}`)
			if c.sub == "" {
				post.want(t, http.StatusCreated)
				return
			}
			post.refused(t, http.StatusUnauthorized, c.sub, "Unauthorized")
		})
	}
	keys := Keys{Primary: testKey("a"), PrimaryReadOnly: testKey("b")}
	w := newWorld(t, Options{Keys: keys, Tokens: &Tokens{Insecure: true}})
	for key, sub := range map[string]string{EmulatorKey: "5002", keys.PrimaryReadOnly: "5002"} {
		w.do(t, "POST", "/dbs", map[string]string{"Authorization": emulated(key, later)}, `{"id":"made"}`).refused(t,
			http.StatusUnauthorized, sub, "Unauthorized")
	}
	w.do(t, "POST", "/dbs", map[string]string{"Authorization": emulated(keys.Primary, later)}, `{"id":"made"}`).want(t,
		http.StatusCreated)
}
