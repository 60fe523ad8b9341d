package cosmos_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/golang-jwt/jwt/v5"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/memnet"
)

// A server is the protocol over a store in memory, behind a network in memory.
type server struct {
	db        *docstore.DB
	transport http.RoundTripper
}

// serve starts a server that ends with the test.
func serve(t *testing.T, o cosmosrest.Options) *server {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	o.Hosts = []string{"account.example"}
	handler, err := cosmosrest.New(db, o)
	if err != nil {
		t.Fatal(err)
	}
	l := memnet.Listen()
	web := &http.Server{Handler: handler}
	transport := &http.Transport{DialContext: l.DialContext, MaxIdleConnsPerHost: 100}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := web.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
		serving.Wait()
		if err := errors.Join(db.Check(), db.Close()); err != nil {
			t.Errorf("check and close store: %v", err)
		}
	})
	return &server{db: db, transport: transport}
}

// client opens the account through a round tripper, nil for the plain one.
func (s *server) client(t *testing.T, credential cosmos.Credential, via http.RoundTripper) *cosmos.Client {
	t.Helper()
	if via == nil {
		via = s.transport
	}
	client, err := cosmos.Open(t.Context(), "http://account.example", credential,
		cosmos.Options{Transport: &http.Client{Transport: via}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var master = cosmos.Key(cosmosrest.EmulatorKey)

func (s *server) create(t *testing.T, spec docstore.ContainerSpec) *docstore.Container {
	t.Helper()
	c, err := s.db.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// find opens a container of the default database.
func find(t *testing.T, client *cosmos.Client, id string) *cosmos.Container {
	t.Helper()
	c, err := client.Container(t.Context(), docstore.DefaultDatabase, id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func unit(t *testing.T, client *cosmos.Client, processor string) *cosmos.Leases {
	t.Helper()
	s, err := cosmos.OpenLeases(t.Context(), find(t, client, "leases"), processor, find(t, client, "items"),
		cosmos.LeaseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tripper is a function that is a round tripper.
type tripper func(r *http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// entra makes an issuer of tokens whose principal may do some actions, and its identity.
func entra(t *testing.T, actions ...string) (*cosmosrest.Tokens, cosmos.Credential) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(map[string]any{"keys": []map[string]string{{
		"kty": "OKP", "crv": "Ed25519", "kid": "k", "alg": "EdDSA", "use": "sig",
		"x": base64.RawURLEncoding.EncodeToString(public),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, keys, 0o600); err != nil {
		t.Fatal(err)
	}
	return &cosmosrest.Tokens{
		Issuer: "https://issuer.example", Audiences: []string{"http://account.example"}, JWKS: file,
		Roles: cosmosrest.Roles{"worker": {{Actions: actions}}},
	}, cosmos.Token(principal{private})
}

// principal signs its own tokens.
type principal struct{ key ed25519.PrivateKey }

func (p principal) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	ends := time.Now().Add(time.Hour)
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": "https://issuer.example", "aud": "http://account.example", "oid": "worker",
		"nbf": time.Now().Unix(), "iat": time.Now().Unix(), "exp": ends.Unix(),
	})
	token.Header["kid"] = "k"
	text, err := token.SignedString(p.key)
	if len(o.Scopes) != 1 || o.Scopes[0] != "http://account.example/.default" {
		err = errors.Join(err, errors.New("the scope is another one"))
	}
	return azcore.AccessToken{Token: text, ExpiresOn: ends}, err
}

const (
	account0   = "Microsoft.DocumentDB/databaseAccounts/"
	container0 = account0 + "sqlDatabases/containers/"
)

// withoutDelete are the actions of a processor that may not delete.
var withoutDelete = []string{
	account0 + "readMetadata", container0 + "readChangeFeed", container0 + "executeQuery",
	container0 + "items/create", container0 + "items/replace",
}

func put(ctx context.Context, c *docstore.Container, doc string) error {
	_, err := c.Upsert(ctx, []byte(doc))
	return err
}

var _ feed.Source = (*cosmos.Container)(nil)
