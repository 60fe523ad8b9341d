package cosmos

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// Options are the optional settings of [Open]. The zero value works.
type Options struct {
	// PreferredRegions are names of regions, such as "West Europe", in the order in which you prefer them: for reads
	// and, if the account has several write regions, for writes. The account's other regions follow. By default the
	// write region comes first.
	PreferredRegions []string

	// Transport sends the requests: an [http.Client] with the certificates, proxy or round tripper of your choice. A
	// Transport must not follow redirects or repeat requests, because a repeated write may be carried out twice. By
	// default the client has its own connections, which Close closes.
	Transport policy.Transporter

	// RequestTimeout bounds a request and its answer, from 100 ms to 10 min; 0 is 15 s. Each repetition of a request
	// has this timeout: if you want to bound the whole, use the context.
	RequestTimeout time.Duration

	// Logger receives failovers and repeated requests; nil discards them.
	Logger *slog.Logger

	// UserAgent is appended to the client's own name in each request.
	UserAgent string
}

// The bounds of Options.RequestTimeout.
const (
	minTimeout     = 100 * time.Millisecond
	defaultTimeout = 15 * time.Second
	maxTimeout     = 10 * time.Minute
)

// Client speaks to one account. All methods may be called concurrently.
type Client struct {
	endpoint  *url.URL // as given, without a trailing slash
	signer    rest.Signer
	transport policy.Transporter
	timeout   time.Duration
	log       *slog.Logger
	agent     string
	regions   *regions
	close     func()
	lasting   sync.Map // the names of the lease containers without a time to live, which the log has named
}

// Open connects to the account at an endpoint such as https://contoso.documents.azure.com or http://127.0.0.1:8081, and
// reads the account's regions. If the service refuses the credential, the error is [feed.ErrForbidden].
func Open(ctx context.Context, endpoint string, credential Credential, o Options) (*Client, error) {
	c, err := newClient(endpoint, credential, o)
	if err != nil {
		return nil, fmt.Errorf("open account: %w", err)
	}
	known, err := c.readAccount(ctx, nil)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("open account %s: %w", c.endpoint, err)
	}
	c.regions.keepAccount(known)
	return c, nil
}

// OpenString connects with a connection string from the portal:
// AccountEndpoint=https://contoso.documents.azure.com:443/;AccountKey=…;
func OpenString(ctx context.Context, connection string, o Options) (*Client, error) {
	endpoint, key, ok := rest.ParseConnection(connection)
	if !ok { // the string is a secret, so the error does not contain it
		return nil, fmt.Errorf("open account: %w",
			badRequest("connection string has no AccountEndpoint or no AccountKey: want "+
				"AccountEndpoint=https://…;AccountKey=…;"))
	}
	return Open(ctx, endpoint, Key(key), o)
}

// newClient makes a client without a request. newClient refuses an invalid user agent, because its header would spoil
// every request.
func newClient(endpoint string, credential Credential, o Options) (*Client, error) {
	at, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	c := &Client{endpoint: at, transport: o.Transport, timeout: o.RequestTimeout, log: o.Logger, close: func() {}}
	if c.signer, err = credential.newSigner(at); err != nil {
		return nil, err
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	if c.timeout < minTimeout || c.timeout > maxTimeout {
		return nil, badRequest("request timeout is %v: want %v to %v, or 0 for %v", c.timeout, minTimeout, maxTimeout,
			defaultTimeout)
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.agent = strings.TrimSpace("changefeed-go (" + runtime.Version() + "; " + runtime.GOOS + ") " + o.UserAgent)
	if !isHeader(c.agent) {
		return nil, badRequest("user agent is %q: want printable ASCII", o.UserAgent)
	}
	c.regions = newRegions(o.PreferredRegions)
	if c.transport == nil {
		own := rest.Connect(nil)
		c.transport, c.close = own, own.CloseIdleConnections
	}
	return c, nil
}

// parseEndpoint reads the address of an account. If the address has a user or a query, parseEndpoint refuses the
// address, because the client would send neither.
func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(endpoint), "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.User != nil {
		return nil, badRequest("endpoint is %q: want one such as https://contoso.documents.azure.com", endpoint)
	}
	u.Host = strings.TrimSuffix(u.Host, ":") // an empty port is no port
	return u, nil
}

// Close closes the client's idle connections. The call is optional, and you can still use the client afterwards.
func (c *Client) Close() { c.close() }

// Endpoint returns the address with which the client was opened.
func (c *Client) Endpoint() string { return c.endpoint.String() }

// badRequest returns a [feed.ErrBadRequest] with a reason.
func badRequest(format string, args ...any) error {
	return fmt.Errorf("%w: %s", feed.ErrBadRequest, fmt.Sprintf(format, args...))
}

// isHeader reports whether text may be the value of a header. Other texts would be refused by net/http with an error
// that names no option.
func isHeader(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
