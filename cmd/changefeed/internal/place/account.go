package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/changefeed/cmd/changefeed/internal/contexts"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/address"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// Which account an address means, and which key belongs to the account. Flags, the environment and contexts offer
// endpoints and keys, and may offer those of different accounts; a key that was given together with an endpoint is sent
// to no other endpoint. Without a key, the request uses an identity of Microsoft Entra ID, except on this machine,
// where only an emulator is possible.

// Settings name an account and a credential. A context and the environment replace empty fields.
type Settings struct {
	Endpoint   string // URL
	Key        string // without a key and a connection string, requests use an identity of Microsoft Entra ID
	Connection string // endpoint and key in a single text
	CA         string // file with the certificate of a server with a self-made certificate
	// Identity, if set, is used in place of every key and of the identity of this machine.
	Identity   azcore.TokenCredential
	NoPrograms bool // run no program for a key, as for a completion, which nobody has asked for

	Choice contexts.Choice                  // of the context
	Say    func(format string, args ...any) // says which account and key are used; nil is silence
}

// The environment variables for empty [Settings].
const (
	EndpointVariable   = "COSMOS_ENDPOINT"
	KeyVariable        = "COSMOS_KEY"
	ConnectionVariable = "COSMOS_CONNECTION_STRING"
	ServerKeyVariable  = "CHANGEFEED_KEY" // the key of changefeed serve
)

// credentials are an endpoint and the key for the endpoint; without a key the identity is Entra ID's.
type credentials struct {
	Endpoint, key string
	from, keyFrom string // the flag, variable or context of each; from is empty if the address has the endpoint
	unused        string // the variable with a key that is not for this context
}

// An offer is an endpoint and a key from one flag, variable or context, each of them only if it is given.
type offer struct {
	from     string
	endpoint string // empty means any endpoint
	key      contexts.KeySource
	isKey    bool   // the key alone is given, so the offer names no endpoint
	notFor   string // endpoint of the context, which gets no key of a variable without an endpoint
}

// offers returns the offers in the order of their precedence: flags, a context that the user has named, the
// environment, and the current context.
func (f Settings) offers() ([]offer, error) {
	connection, err := parseConnection("--connection-string", f.Connection)
	if err != nil {
		return nil, err
	}
	variable, err := parseConnection("$"+ConnectionVariable, os.Getenv(ConnectionVariable))
	if err != nil && f.Connection == "" {
		return nil, err
	}
	named, err := f.offerOfContext()
	if err != nil {
		return nil, err
	}
	var current offer
	if !f.Choice.Explicit() {
		named, current = offer{}, named
	}
	stated := os.Getenv(EndpointVariable)
	return []offer{
		{from: "--endpoint", endpoint: f.Endpoint},
		{from: "--account-key", key: contexts.KeySource{Secret: f.Key}, isKey: true},
		connection,
		named,
		variable,
		{from: "$" + EndpointVariable, endpoint: stated},
		{
			from: "$" + KeyVariable, key: contexts.KeySource{Secret: os.Getenv(KeyVariable)}, isKey: true,
			// A variable without an endpoint belongs to the account of the connection string, if there is one.
			endpoint: cmp.Or(stated, connection.endpoint, variable.endpoint),
			notFor:   cmp.Or(named.endpoint, current.endpoint),
		},
		current,
	}, nil
}

// parseConnection reads a connection string, which may be empty. The string is a secret, so errors do not contain it.
func parseConnection(from, text string) (offer, error) {
	endpoint, key, ok := rest.ParseConnection(text)
	if text != "" && !ok {
		return offer{}, usage.Error{Err: fmt.Errorf("%s has no AccountEndpoint or no AccountKey: want "+
			"AccountEndpoint=https://HOST:PORT/;AccountKey=KEY;", from)}
	}
	return offer{from: from, endpoint: endpoint, key: contexts.KeySource{Secret: key}}, nil
}

// findAccount returns the account of an address. A key belongs to the endpoint with which it was given, and is sent to
// no other endpoint, because the other endpoint could then use the key.
func (f Settings) findAccount(ctx context.Context, a Address) (credentials, error) {
	offers, err := f.offers()
	if err != nil {
		return credentials{}, err
	}
	c := credentials{Endpoint: a.endpoint}
	for _, o := range offers {
		if c.Endpoint == "" && !o.isKey {
			c.Endpoint, c.from = o.endpoint, o.from
		}
	}
	if c.Endpoint == "" {
		return c, usage.Error{Err: fmt.Errorf("%s is %s, and no account is named: want --endpoint, $%s, $%s or "+
			"--context", a.Field, a.Given, EndpointVariable, ConnectionVariable)}
	}
	if f.Identity != nil {
		c.keyFrom = "tokens of the parent process"
		return c, nil
	}
	// The key of changefeed serve has no endpoint. The endpoint of an address may have come from anywhere, so the key
	// is sent only within this machine, or to an endpoint from the user's settings.
	isNamed := func(o offer) bool { return !o.isKey && sameHost(o.endpoint, c.Endpoint) }
	if IsLoopback(c.Endpoint) || slices.ContainsFunc(offers, isNamed) {
		offers = append(offers, offer{
			from: "$" + ServerKeyVariable, key: contexts.KeySource{Secret: os.Getenv(ServerKeyVariable)}, isKey: true,
		})
	}
	for _, o := range offers {
		if o.key.IsZero() || o.endpoint != "" && !sameHost(o.endpoint, c.Endpoint) {
			continue
		}
		if o.endpoint == "" && sameHost(o.notFor, c.Endpoint) {
			c.unused = o.from
			continue
		}
		if f.NoPrograms && len(o.key.Command) > 0 {
			return c, fmt.Errorf("%s: no program is run", o.from)
		}
		if c.key, err = o.key.Read(ctx); err != nil {
			return c, fmt.Errorf("%s: %w", o.from, err)
		}
		c.keyFrom = "key from " + o.from
		return c, c.checkKey()
	}
	c.keyFrom = "Microsoft Entra ID, because there is no key"
	if c.unused != "" {
		c.keyFrom = "Microsoft Entra ID, because the context has no key, and " + c.unused + " is for no context"
	}
	// Only an emulator listens on loopback, so the emulator's key is no secret.
	if IsLoopback(c.Endpoint) {
		c.key = cosmosrest.EmulatorKey
		c.keyFrom = "the emulator's well-known key, because the endpoint is a loopback address"
	}
	return c, nil
}

// checkKey refuses a key that no account has.
func (c credentials) checkKey() error {
	if _, err := rest.Key(c.key); err != nil {
		return usage.Error{Err: fmt.Errorf("%s: the account key is not base64: want the key as the portal shows it",
			strings.TrimPrefix(c.keyFrom, "key from "))}
	}
	return nil
}

// sameHost reports whether two URLs lead to the same server in the same way: what was given for https must not be sent
// without encryption. Within this machine nobody can read it.
func sameHost(one, other string) bool {
	a, b := hostPort(one), hostPort(other)
	return a != "" && a == b && (schemeOf(one) == schemeOf(other) || IsLoopback(one))
}

// schemeOf returns the scheme of a URL.
func schemeOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme
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
	return address.IsLoopback(hostOf(endpoint))
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
	atOnce bool // see Opener
}

// Account opens the account of an address. The store in a directory is an account too; see storeAccount.
func (o *Opener) Account(ctx context.Context, a Address) (*Account, error) {
	switch {
	case a.Dir != "":
		return o.storeAccount(a)
	case a.login != nil:
		return o.loginAccount(ctx, a.login)
	}
	c, err := o.flags.findAccount(ctx, a)
	if err != nil {
		return nil, err
	}
	// All addresses of an endpoint share a client, with the connections and the knowledge of regions.
	if found := o.accounts[c.Endpoint]; found != nil {
		return found, nil
	}
	account := "account " + c.Endpoint
	if a.endpoint == "" {
		account += " from " + c.from
	}
	o.flags.say("%s is %s: %s, %s", a.Field, a.Given, account, c.keyFrom)
	opened, credential, err := o.flags.prepare(c)
	if err != nil {
		return nil, err
	}
	opened.atOnce = o.AtOnce
	if opened.client, err = cosmos.Open(ctx, c.Endpoint, credential,
		cosmos.Options{Transport: opened.http, Logger: o.clientLog()}); err != nil {
		if errors.Is(err, feed.ErrBadRequest) && Status(err) == 0 { // no account was asked
			return nil, usage.Error{Err: fmt.Errorf("%s: %s", cmp.Or(c.from, a.Field),
				strings.TrimPrefix(err.Error(), "open account: "))}
		}
		return nil, o.explainRefusal(c, err)
	}
	o.accounts[c.Endpoint] = opened
	return opened, nil
}

// prepare returns an account with its connections and its identity, without a request.
func (f Settings) prepare(c credentials) (a *Account, credential cosmos.Credential, err error) {
	a = &Account{credentials: c}
	if a.http, err = f.makeTransport(c.Endpoint); err != nil {
		return nil, credential, err
	}
	if a.signer, credential, err = f.findIdentity(c); err != nil {
		return nil, credential, err
	}
	return a, credential, nil
}

// say tells the user who has asked for more.
func (f Settings) say(format string, args ...any) {
	if f.Say != nil {
		f.Say("%s", terminal.WithoutSecrets(fmt.Sprintf(format, args...)))
	}
}

// explainRefusal returns the error of an account with the credential that the account has refused, or with the news
// that nothing is retried yet.
func (o *Opener) explainRefusal(c credentials, err error) error {
	keyless, ok := errors.AsType[*noKeyError](err)
	switch {
	case ok:
		return keyless
	case Status(err) == http.StatusUnauthorized:
		return fmt.Errorf("%w (%s)", err, c.keyFrom)
	case o.Retries != nil && o.Retries.Limit > 0 && errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w (--wait applies only after the first connection)", err)
	}
	return err
}

// findIdentity returns the identity for requests: the owner of the key or, without a key, the identity of this machine.
func (f Settings) findIdentity(c credentials) (rest.Signer, cosmos.Credential, error) {
	if c.key != "" {
		signer, err := rest.Key(c.key)
		return signer, cosmos.Key(c.key), err
	}
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, cosmos.Credential{}, fmt.Errorf("account %q: %w", c.Endpoint, err)
	}
	if f.Identity != nil {
		return rest.Token(f.Identity, endpoint), cosmos.Token(f.Identity), nil
	}
	found, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, cosmos.Credential{}, fmt.Errorf("find an identity, because there is no key for %s: %w", c.Endpoint,
			err)
	}
	identity := &entraIdentity{TokenCredential: found, endpoint: c.Endpoint, unused: c.unused, say: f.say}
	return rest.Token(identity, endpoint), cosmos.Token(identity), nil
}

// entraIdentity is the identity of this machine. Its error is one line, because most users without an identity have
// forgotten their key.
type entraIdentity struct {
	azcore.TokenCredential
	endpoint string
	unused   string
	say      func(format string, args ...any)
	said     sync.Once
}

// GetToken implements [azcore.TokenCredential].
func (e *entraIdentity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := e.TokenCredential.GetToken(ctx, o)
	if err != nil && ctx.Err() == nil {
		// Requests are retried, but the reason stays the same.
		e.said.Do(func() { e.say("Microsoft Entra ID gives no token: %v", err) })
		err = &noKeyError{e.endpoint, e.unused}
	}
	return token, err
}

// noKeyError says that there is neither a key nor an identity for an endpoint. The cause is left out, because the cause
// has many lines.
type noKeyError struct{ endpoint, unused string }

// Error returns what to do.
func (e *noKeyError) Error() string {
	if e.unused != "" {
		return fmt.Sprintf("no key for %s: its context has none, and %s is for no context: want --account-key, a context "+
			"with a key, or log in to Microsoft Entra ID; -v says why this machine has no identity", e.endpoint, e.unused)
	}
	return fmt.Sprintf("no key for %s: want $%s, --account-key, a connection string or a context with a key, or log "+
		"in to Microsoft Entra ID; -v says why this machine has no identity", e.endpoint, KeyVariable)
}

// openRemote opens an existing container of an account.
func (o *Opener) openRemote(ctx context.Context, a Address) (*Container, error) {
	opened, err := o.Account(ctx, a)
	if err != nil {
		return nil, err
	}
	var c *cosmos.Container
	err = opened.whileThrottled(ctx, func() error {
		c, err = opened.client.Container(ctx, a.Database, a.Container)
		return err
	})
	if err != nil {
		return nil, opened.explainMissing(ctx, a, err)
	}
	found := &Container{Address: a, Source: c, writer: c, Remote: c, Account: opened, retries: o.Retries}
	if o.Retries != nil {
		found.Source = o.Retries.patientSource(c)
	}
	return found, nil
}
