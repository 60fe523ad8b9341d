package rest

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"time"
)

// ParseConnection returns the endpoint and key of a connection string from the portal,
// AccountEndpoint=https://contoso.documents.azure.com:443/;AccountKey=…; If either is missing, ok is false.
func ParseConnection(text string) (endpoint, key string, ok bool) {
	for part := range strings.SplitSeq(text, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "accountendpoint":
			endpoint = strings.TrimSpace(value)
		case "accountkey":
			key = strings.TrimSpace(value)
		}
	}
	return endpoint, key, endpoint != "" && key != ""
}

const (
	// A connection that does not answer a ping is closed, because HTTP/2 sends all requests over the same connection
	// and would continue to use a dead connection.
	connsPerHost = 200 // idle connections kept: each lease that waits for changes holds a connection
	idleTimeout  = 90 * time.Second
	dialTimeout  = 5 * time.Second // after this time a region counts as dead
	tlsTimeout   = 10 * time.Second
	pingTimeout  = 10 * time.Second
)

// Connect returns a client with its own connections; the client's CloseIdleConnections closes them. Connect follows
// no redirects, because a signature is valid for only a single server. A nil config trusts the certificates that the
// machine trusts.
func Connect(config *tls.Config) *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConns: connsPerHost, MaxIdleConnsPerHost: connsPerHost,
		IdleConnTimeout: idleTimeout, TLSHandshakeTimeout: tlsTimeout, TLSClientConfig: config,
		ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: pingTimeout, PingTimeout: pingTimeout},
	}}
}
