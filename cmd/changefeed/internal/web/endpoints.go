package web

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cosmosrest"
)

// Endpoints describe how to connect to a served store. Programs read them as JSON from a pipe.
type Endpoints struct {
	Endpoint    string       `json:"endpoint" about:"URL of the account"`
	Dedicated   report.Known `json:"dedicated_endpoint" about:"URL of the dedicated gateway; null if there is none"`
	Key         string       `json:"key" about:"the account key"`
	Connection  string       `json:"connection_string" about:"endpoint and key"`
	Certificate report.Known `json:"certificate" about:"file that clients must trust; null if there is none"`
	Store       report.Known `json:"store" about:"directory; null if the store is in memory"`
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
	e = Endpoints{Key: o.clientKey(), Certificate: report.Known(certificate)}
	for _, w := range sites {
		if w.Dedicated {
			e.Dedicated = report.Known(o.clientURL(w.Addr()))
		} else {
			e.Endpoint = o.clientURL(w.Addr())
		}
	}
	e.Connection = cosmosrest.ConnectionString(e.Endpoint, e.Key)
	if o.Dir != "" {
		var dir string
		dir, err = filepath.Abs(o.Dir)
		e.Store = report.Known(dir)
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
		lines = append(lines, "dedicated gateway", string(e.Dedicated))
	}
	lines = append(lines, "to connect", "export COSMOS_ENDPOINT='"+e.Endpoint+"'", "", "export COSMOS_KEY='"+key+"'")
	if e.Certificate != "" {
		file := string(e.Certificate)
		lines = append(lines,
			"certificate", file,
			"to trust it", "export SSL_CERT_FILE='"+file+"'        # Go, Rust, curl",
			"", "export REQUESTS_CA_BUNDLE='"+file+"'   # Python",
			"", "export NODE_EXTRA_CA_CERTS='"+file+"'  # Node")
	}
	lines = append(lines, "store", cmp.Or(string(e.Store), "in memory: it is gone when the server ends; --db DIR keeps a store"))
	for i := 0; i < len(lines); i += 2 {
		if _, err := fmt.Fprintf(to, "%-18s %s\n", lines[i], lines[i+1]); err != nil {
			return err
		}
	}
	return nil
}
