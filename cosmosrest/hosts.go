package cosmosrest

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// By which names a server is called. The owner of a web page can let a name of his point to
// 127.0.0.1 after the page was loaded: a browser then lets the page read what a server of
// that machine answers. Such a request names the host of the page. So a server whose key
// anybody knows answers to the names of its machine, and to those it was told.

// knownHosts are the host names that a server answers to besides those of its own machine, in
// lower case.
type knownHosts map[string]bool

// known are the hosts of the options; nil is every host, because a page does not know the
// keys.
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

// refuse refuses a request to a host that is not known.
func (h knownHosts) refuse(host string) error {
	name := plainHost(host)
	if h == nil || name == "" || h[name] || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return nil // without a name the request is none of a browser
	}
	if ip := net.ParseIP(name); ip != nil && ip.IsLoopback() {
		return nil
	}
	e := wire.Errorf(http.StatusForbidden, 0, wire.CodeForbidden, "The header Host is %.256q: want a loopback address, localhost, or a name that is given to changefeed serve --allow-host (in a program, to Options.Hosts): anybody knows the key of this server, also a web page that has a name point to this machine", host)
	e.Bare = true
	return e
}

// CheckHost refuses what cannot be an element of [Options.Hosts].
func CheckHost(name string) error {
	ip := net.ParseIP(strings.Trim(name, "[]"))
	if name == "" || ip == nil && strings.ContainsAny(name, ":/*?@[] ") {
		return fmt.Errorf("want a host name or an IP address without scheme, port and wildcards, such as cosmos.internal")
	}
	return nil
}

// plainHost is a host without its port and brackets, in lower case.
func plainHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimPrefix(strings.TrimSuffix(host, "]"), "[")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// IsEmulatorKey reports [EmulatorKey], whichever way it is written in base64.
func IsEmulatorKey(key string) bool {
	text, err := base64.StdEncoding.DecodeString(key)
	known, _ := base64.StdEncoding.DecodeString(EmulatorKey) // is base64
	return err == nil && string(text) == string(known)
}
