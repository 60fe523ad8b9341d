package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/web"
)

// The first output of serve: how to connect, for people and for programs.

// serving is the first line of output, by which programs learn how to connect.
type serving struct {
	Endpoint    string `json:"endpoint"`
	Dedicated   string `json:"dedicated_endpoint,omitempty"`
	Key         string `json:"key"`
	Connection  string `json:"connection_string"`
	Certificate string `json:"certificate,omitempty"` // file that clients must trust
	Store       string `json:"store,omitempty"`       // directory; none is memory
}

// tell writes how to connect: for programs with the key, for people with the emulator's only.
func (o *serveOptions) tell(to io.Writer, all web.Sites, certificate string) error {
	s := serving{Key: cosmosrest.EmulatorKey, Certificate: certificate}
	if len(o.keys) > 0 {
		s.Key = o.keys[0]
	}
	for _, w := range all {
		if w.Dedicated {
			s.Dedicated = o.url(w.Addr())
		} else {
			s.Endpoint = o.url(w.Addr())
		}
	}
	var err error
	if o.db != "" {
		if s.Store, err = filepath.Abs(o.db); err != nil {
			return err
		}
	}
	// A program that starts the server needs the key, and reads it from a pipe.
	if o.output.value == "json" {
		s.Connection = cosmosrest.ConnectionString(s.Endpoint, s.Key)
		return json.NewEncoder(to).Encode(s)
	}
	return s.write(to)
}

// url is an address for clients: that of this machine, if the server listens on all
// interfaces.
func (o *serveOptions) url(address net.Addr) string {
	scheme, text := "https", address.String()
	if o.plain {
		scheme = "http"
	}
	// No client can connect to 0.0.0.0 or ::, and the certificate is for localhost.
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		text = net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return scheme + "://" + text + "/"
}

// write writes it for people. A secret key is left out, because terminals are shared and
// logged.
func (s serving) write(to io.Writer) error {
	key := s.Key
	if key != cosmosrest.EmulatorKey {
		key = "KEY"
	}
	lines := []string{"endpoint", s.Endpoint, "connection string", cosmosrest.ConnectionString(s.Endpoint, key)}
	if s.Dedicated != "" {
		lines = append(lines, "dedicated gateway", s.Dedicated)
	}
	if s.Certificate != "" {
		lines = append(lines,
			"certificate", s.Certificate,
			"to trust it", "export SSL_CERT_FILE='"+s.Certificate+"'        # Go",
			"", "export REQUESTS_CA_BUNDLE='"+s.Certificate+"'   # Python",
			"", "export NODE_EXTRA_CA_CERTS='"+s.Certificate+"'  # Node")
	}
	lines = append(lines, "store", cmp.Or(s.Store, "in memory: it is gone when the server ends; --db DIR keeps one"))
	for i := 0; i < len(lines); i += 2 {
		if _, err := fmt.Fprintf(to, "%-18s %s\n", lines[i], lines[i+1]); err != nil {
			return err
		}
	}
	return nil
}
