package place

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// Which account an address means, and which key belongs to the account. The settings come from flags and from the
// environment, and may name different accounts; a key that was given together with an endpoint is sent to no other
// endpoint. Without a key, the request uses an identity of Microsoft Entra ID, except on this machine, where only an
// emulator is possible.

// Settings name an account and a credential. The environment replaces empty fields.
type Settings struct {
	Endpoint   string // URL
	Key        string // without a key and a connection string, requests use an identity of Microsoft Entra ID
	Connection string // endpoint and key in a single text
	CA         string // file with the certificate of a server with a self-made certificate
}

// The environment variables for empty [Settings].
const (
	EndpointVariable   = "COSMOS_ENDPOINT"
	KeyVariable        = "COSMOS_KEY"
	ConnectionVariable = "COSMOS_CONNECTION_STRING"
)

// credentials are an endpoint and the key for the endpoint; without a key the identity is Entra ID's.
type credentials struct{ Endpoint, key string }

// findAccount returns the account of an address. A key belongs to the endpoint with which it was given, and is sent to
// no other endpoint, because the other endpoint could then use the key.
func (f Settings) findAccount(a Address) (credentials, error) {
	connection, err := parseConnection(cmp.Or(f.Connection, os.Getenv(ConnectionVariable)))
	if err != nil {
		return credentials{}, err
	}
	endpoint, key := cmp.Or(f.Endpoint, connection.Endpoint), connection.key
	// A flag may name another account than the connection string; then the key of the connection string is not for that
	// account.
	if !sameHost(endpoint, connection.Endpoint) {
		key = ""
	}
	if endpoint == "" || f.Endpoint != "" && key == "" {
		stated := os.Getenv(EndpointVariable)
		endpoint = cmp.Or(endpoint, stated)
		if stated == "" || sameHost(stated, endpoint) {
			key = os.Getenv(KeyVariable)
		}
	}
	switch {
	case a.endpoint == "" && endpoint == "":
		return credentials{},
			usage.Error{Err: fmt.Errorf("%s is %s, of an account that nothing tells: want --endpoint, %s or %s",
				a.Field, a.Given, EndpointVariable, ConnectionVariable)}
	case a.endpoint != "" && endpoint != "" && !sameHost(a.endpoint, endpoint):
		key = ""
	}
	c := credentials{cmp.Or(a.endpoint, endpoint), cmp.Or(f.Key, key)}
	// Only an emulator listens on loopback, so the emulator's key is no secret.
	if c.key == "" && IsLoopback(c.Endpoint) {
		c.key = cosmosrest.EmulatorKey
	}
	return c, nil
}

// parseConnection reads a connection string, which may be empty. The string is a secret, so errors do not contain it.
func parseConnection(text string) (c credentials, err error) {
	endpoint, key, ok := rest.ParseConnection(text)
	if text != "" && !ok {
		return c,
			usage.Error{Err: errors.New("connection string has no AccountEndpoint or no AccountKey: want " +
				"AccountEndpoint=https://HOST:PORT/;AccountKey=KEY;")}
	}
	return credentials{endpoint, key}, nil
}

// sameHost reports whether two URLs lead to the same server.
func sameHost(one, other string) bool {
	a, b := hostPort(one), hostPort(other)
	return a != "" && a == b
}

// hostPort returns host and port of a URL. If the URL has no port, hostPort uses the port of the scheme, because the
// service's own connection strings contain the port, and people omit it.
func hostPort(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := "443"
	if u.Scheme == "http" {
		port = "80"
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), cmp.Or(u.Port(), port))
}

// IsLoopback reports whether only this machine can reach a URL.
func IsLoopback(endpoint string) bool {
	host := hostOf(endpoint)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// hostOf returns the host of a URL without the port.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// An Account is an open account.
type Account struct {
	credentials
	signer rest.Signer
	client *cosmos.Client
	http   *http.Client
}

// Account opens the account of an address.
func (o *Opener) Account(ctx context.Context, a Address) (*Account, error) {
	c, err := o.flags.findAccount(a)
	if err != nil {
		return nil, err
	}
	// All addresses of an endpoint share a client, with the connections and the knowledge of regions.
	if found := o.accounts[c.Endpoint]; found != nil {
		return found, nil
	}
	opened := &Account{credentials: c}
	if opened.http, err = o.flags.makeTransport(); err != nil {
		return nil, err
	}
	var credential cosmos.Credential
	if opened.signer, credential, err = c.findIdentity(); err != nil {
		return nil, err
	}
	if opened.client, err = cosmos.Open(ctx, c.Endpoint, credential,
		cosmos.Options{Transport: opened.http, Logger: o.Log}); err != nil {
		return nil, err
	}
	o.accounts[c.Endpoint] = opened
	return opened, nil
}

// findIdentity returns the identity for requests: the owner of the key or, without a key, the identity of this machine.
func (c credentials) findIdentity() (rest.Signer, cosmos.Credential, error) {
	if c.key != "" {
		signer, err := rest.Key(c.key)
		return signer, cosmos.Key(c.key), err
	}
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, cosmos.Credential{}, fmt.Errorf("find an identity, because there is no key for %s: %w", c.Endpoint,
			err)
	}
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, cosmos.Credential{}, fmt.Errorf("account %q: %w", c.Endpoint, err)
	}
	return rest.Token(identity, endpoint), cosmos.Token(identity), nil
}

// makeTransport makes the connections of an account.
func (f Settings) makeTransport() (*http.Client, error) {
	if f.CA == "" {
		return rest.Connect(nil), nil
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read --ca: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca is %s: there is no certificate in it: want a PEM file", f.CA)
	}
	return rest.Connect(&tls.Config{RootCAs: roots}), nil
}

// openRemote opens an existing container of an account.
func (o *Opener) openRemote(ctx context.Context, a Address) (*Container, error) {
	opened, err := o.Account(ctx, a)
	if err != nil {
		return nil, err
	}
	c, err := opened.client.Container(ctx, a.Database, a.Container)
	if err != nil {
		return nil, opened.explainMissing(ctx, a, err)
	}
	found := &Container{Address: a, Source: c, writer: c, Remote: c, Account: opened, retries: o.Retries}
	if o.Retries != nil {
		found.Source = o.Retries.patientSource(c)
	}
	return found, nil
}
