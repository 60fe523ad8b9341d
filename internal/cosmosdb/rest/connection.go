package rest

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"time"
)

// ParseConnection takes endpoint and key out of a connection string from the portal,
// AccountEndpoint=https://contoso.documents.azure.com:443/;AccountKey=…; and is not ok where one of them is missing.
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
	// A connection that does not answer a ping is given up, because HTTP/2 sends all
	// requests over the same connection and would go on trying a dead one.
	connsPerHost = 200 // that are kept for later: each lease that waits for changes holds one
	idleTimeout  = 90 * time.Second
	dialTimeout  = 5 * time.Second // a region that is dead is found out by it
	tlsTimeout   = 10 * time.Second
	pingTimeout  = 10 * time.Second
)

// Connect returns a client with connections of its own, which its CloseIdleConnections closes. It follows no redirect,
// because a signature is for one server. A nil config trusts the certificates that the machine trusts.
func Connect(config *tls.Config) *http.Client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConns: connsPerHost, MaxIdleConnsPerHost: connsPerHost,
		IdleConnTimeout: idleTimeout, TLSHandshakeTimeout: tlsTimeout, TLSClientConfig: config,
		ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{SendPingTimeout: pingTimeout, PingTimeout: pingTimeout},
	}}
}
