package cosmosrest

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// The host names that a server answers to. The owner of a web page can make a name of his point to 127.0.0.1 after
// the page was loaded. The browser then lets the page read the answers of a server on that machine. Such a request
// has the page's host name. So a server with a well-known key answers only to the names of its machine, and to the
// names in its options.

// knownHosts are the host names, in lower case, that a server answers to in addition to those of its own machine.
type knownHosts map[string]bool

// known returns the hosts of the options. Nil means every host: if the keys are secret, a web page does not know
// them.
func (o *Options) known() (knownHosts, error) {
	hosts := knownHosts{}
	for _, name := range o.Hosts {
		if err := CheckHost(name); err != nil {
			return nil, fmt.Errorf("host %q: %w", name, err)
		}
		hosts[plainHost(name)] = true
	}
	if o.Tokens != nil && o.Tokens.Insecure {
		return hosts, nil
	}
	for _, key := range o.Keys.list() {
		if IsEmulatorKey(key.Text) {
			return hosts, nil
		}
	}
	return nil, nil
}

// refuse refuses a request to an unknown host.
func (h knownHosts) refuse(host string) error {
	name := plainHost(host)
	if h == nil || name == "" || h[name] || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return nil // a browser always sends a name
	}
	if ip := net.ParseIP(name); ip != nil && ip.IsLoopback() {
		return nil
	}
	e := wire.Errorf(http.StatusForbidden, 0, wire.CodeForbidden,
		"The header Host is %.256q: want a loopback address, localhost, or a name that is given to changefeed serve "+
			"--allow-host (in a program, to Options.Hosts): anybody knows the key of this server, also a web page "+
			"that has a name point to this machine", host)
	e.Bare = true
	return e
}

// CheckHost returns an error if name is not valid in [Options.Hosts].
func CheckHost(name string) error {
	ip := net.ParseIP(strings.Trim(name, "[]"))
	if name == "" || ip == nil && strings.ContainsAny(name, ":/*?@[] ") {
		return fmt.Errorf("want a host name or an IP address without scheme, port and wildcards, such as " +
			"cosmos.internal")
	}
	return nil
}

// plainHost returns a host without its port and brackets, in lower case.
func plainHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimPrefix(strings.TrimSuffix(host, "]"), "[")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// IsEmulatorKey reports whether key is [EmulatorKey], in any base64 spelling.
func IsEmulatorKey(key string) bool {
	text, err := base64.StdEncoding.DecodeString(key)
	known, _ := base64.StdEncoding.DecodeString(EmulatorKey) // EmulatorKey is valid base64
	return err == nil && string(text) == string(known)
}
