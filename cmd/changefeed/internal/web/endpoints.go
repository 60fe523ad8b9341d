package web

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"

	"github.com/millrace/changefeed/cosmosrest"
)

// Endpoints describe how to connect to a served store. Programs read them as JSON from a pipe.
type Endpoints struct {
	Endpoint    string `json:"endpoint" about:"URL of the account"`
	Dedicated   string `json:"dedicated_endpoint,omitempty" about:"URL of the dedicated gateway"`
	Key         string `json:"key" about:"the account key"`
	Connection  string `json:"connection_string" about:"endpoint and key"`
	Certificate string `json:"certificate,omitempty" about:"file that clients must trust"`
	Store       string `json:"store,omitempty" about:"directory; without one the store is in memory"`
}

// ReportedAs implements [report.Value].
func (Endpoints) ReportedAs() string { return "server" }

// clientKey returns the key that clients are told.
func (o *Options) clientKey() string {
	if len(o.Keys) > 0 {
		return o.Keys[0]
	}
	return cosmosrest.EmulatorKey
}

// endpoints returns the endpoints of the sites.
func (o *Options) endpoints(sites Sites, certificate string) (e Endpoints, err error) {
	e = Endpoints{Key: o.clientKey(), Certificate: certificate}
	for _, w := range sites {
		if w.Dedicated {
			e.Dedicated = o.clientURL(w.Addr())
		} else {
			e.Endpoint = o.clientURL(w.Addr())
		}
	}
	e.Connection = cosmosrest.ConnectionString(e.Endpoint, e.Key)
	if o.Dir != "" {
		e.Store, err = filepath.Abs(o.Dir)
	}
	return e, err
}

// clientURL returns an address for clients. If the server listens on all interfaces, this is the address of this
// machine.
func (o *Options) clientURL(address net.Addr) string {
	scheme, text := "https", address.String()
	if o.Plain {
		scheme = "http"
	}
	// Clients cannot connect to 0.0.0.0 or ::, and the certificate is for localhost.
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		text = net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return scheme + "://" + text + "/"
}

// Write writes the endpoints for people. A secret key is left out, because terminals are shared and logged.
func (e Endpoints) Write(to io.Writer) error {
	key := e.Key
	if key != cosmosrest.EmulatorKey {
		key = "KEY"
	}
	lines := []string{"endpoint", e.Endpoint, "connection string", cosmosrest.ConnectionString(e.Endpoint, key)}
	if e.Dedicated != "" {
		lines = append(lines, "dedicated gateway", e.Dedicated)
	}
	if e.Certificate != "" {
		lines = append(lines,
			"certificate", e.Certificate,
			"to trust it", "export SSL_CERT_FILE='"+e.Certificate+"'        # Go",
			"", "export REQUESTS_CA_BUNDLE='"+e.Certificate+"'   # Python",
			"", "export NODE_EXTRA_CA_CERTS='"+e.Certificate+"'  # Node")
	}
	lines = append(lines, "store", cmp.Or(e.Store, "in memory: it is gone when the server ends; --db DIR keeps one"))
	for i := 0; i < len(lines); i += 2 {
		if _, err := fmt.Fprintf(to, "%-18s %s\n", lines[i], lines[i+1]); err != nil {
			return err
		}
	}
	return nil
}
