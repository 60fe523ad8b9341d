package main

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
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/spf13/cobra"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/usage"
)

// accountFlags tell an account, and who asks. What is not given comes from the
// environment.
type accountFlags struct {
	endpoint   string
	key        string
	connection string
	ca         string
}

// The variables of the environment.
const (
	endpointVariable   = "COSMOS_ENDPOINT"
	keyVariable        = "COSMOS_KEY"
	connectionVariable = "COSMOS_CONNECTION_STRING"
)

func (f *accountFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.endpoint, "endpoint", "", "`URL` of the account of a cosmos address (default $"+endpointVariable+")")
	flags.StringVar(&f.key, "account-key", "", "`key` of the account; better given as $"+keyVariable+", which others cannot see")
	flags.StringVar(&f.connection, "connection-string", "", "endpoint and key in one `text` (default $"+connectionVariable+")")
	flags.StringVar(&f.ca, "ca", "", "`file` with the certificate of a server that made its own")
}

// credentials are an endpoint and its key; without a key it is Entra ID's.
type credentials struct{ endpoint, key string }

// find tells the account of an address. A key belongs to the endpoint beside it, and is
// shown to no other.
func (f accountFlags) find(a address) (credentials, error) {
	connection, err := parseConnection(cmp.Or(f.connection, os.Getenv(connectionVariable)))
	if err != nil {
		return credentials{}, err
	}
	endpoint, key := cmp.Or(f.endpoint, connection.endpoint), connection.key
	if endpoint != connection.endpoint {
		key = ""
	}
	if endpoint == "" || f.endpoint != "" && key == "" {
		stated := os.Getenv(endpointVariable)
		endpoint = cmp.Or(endpoint, stated)
		if stated == "" || sameHost(stated, endpoint) {
			key = os.Getenv(keyVariable)
		}
	}
	switch {
	case a.endpoint == "" && endpoint == "":
		return credentials{}, usage.Error{Err: fmt.Errorf("%s is %s, of an account that nothing tells: want --endpoint, %s or %s", a.field, a.given, endpointVariable, connectionVariable)}
	case a.endpoint != "" && endpoint != "" && !sameHost(a.endpoint, endpoint):
		key = ""
	}
	c := credentials{cmp.Or(a.endpoint, endpoint), cmp.Or(f.key, key)}
	if c.key == "" && isLoopback(c.endpoint) {
		c.key = cosmosrest.EmulatorKey
	}
	return c, nil
}

// parseConnection reads AccountEndpoint=...;AccountKey=...; or nothing. It is a secret,
// so errors do not repeat it.
func parseConnection(text string) (c credentials, err error) {
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch strings.ToLower(name) {
		case "accountendpoint":
			c.endpoint = value
		case "accountkey":
			c.key = value
		}
	}
	if text != "" && (c.endpoint == "" || c.key == "") {
		return c, usage.Error{Err: errors.New("connection string has no AccountEndpoint or no AccountKey: want AccountEndpoint=https://HOST:PORT/;AccountKey=KEY;")}
	}
	return c, nil
}

// sameHost tells whether two URLs lead to one server.
func sameHost(one, other string) bool {
	a, b := hostPort(one), hostPort(other)
	return a != "" && a == b
}

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

// isLoopback tells a URL that only this machine can reach.
func isLoopback(endpoint string) bool {
	host := hostOf(endpoint)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// hostOf is the host of a URL without its port.
func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// An account is one that is open.
type account struct {
	credentials
	identity azcore.TokenCredential // where there is no key
	client   *cosmos.Client
	http     *http.Client
}

// account opens the account of an address.
func (o *opener) account(ctx context.Context, a address) (*account, error) {
	c, err := o.flags.find(a)
	if err != nil {
		return nil, err
	}
	if found := o.accounts[c.endpoint]; found != nil {
		return found, nil
	}
	opened := &account{credentials: c}
	if opened.http, err = o.flags.transport(); err != nil {
		return nil, err
	}
	credential := cosmos.Key(c.key)
	if c.key == "" {
		if opened.identity, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
			return nil, fmt.Errorf("find an identity, because there is no key for %s: %w", c.endpoint, err)
		}
		credential = cosmos.Token(opened.identity)
	}
	if opened.client, err = cosmos.Open(ctx, c.endpoint, credential, cosmos.Options{Transport: opened.http, Logger: o.log}); err != nil {
		return nil, err
	}
	o.accounts[c.endpoint] = opened
	return opened, nil
}

// Each lease that waits for changes holds a connection, so that many are kept.
const (
	keptConnections = 200
	keptFor         = 90 * time.Second
	dialTime        = 5 * time.Second // a region that is dead is found out by it
	handshakeTime   = 10 * time.Second
	pingTime        = 10 * time.Second // a connection that does not answer a ping is given up
)

// transport makes the connections of an account.
func (f accountFlags) transport() (*http.Client, error) {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTime}).DialContext,
		ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: pingTime, PingTimeout: pingTime},
		MaxIdleConns: keptConnections, MaxIdleConnsPerHost: keptConnections,
		IdleConnTimeout: keptFor, TLSHandshakeTimeout: handshakeTime,
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("read --ca: %w", err)
		}
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca is %s: there is no certificate in it: want a PEM file", f.ca)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: t, CheckRedirect: stay}, nil
}

// openRemote opens a container of an account, which must be there.
func (o *opener) openRemote(ctx context.Context, a address) (*container, error) {
	opened, err := o.account(ctx, a)
	if err != nil {
		return nil, err
	}
	c, err := opened.client.Container(ctx, a.database, a.container)
	if err != nil {
		return nil, opened.missing(ctx, a, err)
	}
	found := &container{address: a, source: c.Source(), writer: c, remote: c, account: opened, retries: o.retries}
	if o.retries != nil {
		found.source = o.retries.source(found.source)
	}
	return found, nil
}
