// Package address reads the addresses of containers: in the directory of a store, or in an account of Azure Cosmos DB.
package address

import (
	"net"
	"net/url"
	"strings"
)

// Forms are the forms of an address, for the help and for errors.
const Forms = "docstore:DIR#container, cosmos:DATABASE/container or https://HOST:PORT/DATABASE/container"

// DefaultDatabase is the database of a container whose name has none.
const DefaultDatabase = "default"

// Address says where a container is.
type Address struct {
	Dir       string // of the store; empty for an account
	Endpoint  string // of the account; empty for a store, and if the address leaves the account to the environment
	Database  string
	Container string
}

// Parse reads an address in one of [Forms]. If the text has none of these forms, ok is false.
func Parse(text string) (a Address, ok bool) {
	scheme, rest, found := strings.Cut(text, ":")
	switch {
	case !found:
	case scheme == "docstore":
		// The last # separates: the name of a directory may contain #, the name of a container may not.
		i := strings.LastIndexByte(rest, '#')
		if i <= 0 {
			break
		}
		a.Dir = rest[:i]
		a.Database, a.Container, ok = ParseName(rest[i+1:])
	case scheme == "cosmos":
		a.Database, a.Container, ok = ParseName(rest)
		ok = ok && strings.Contains(rest, "/")
	case scheme == "https" || scheme == "http":
		ok = a.parseURL(text)
	}
	return a, ok
}

// ParseName reads container or database/container.
func ParseName(text string) (database, container string, ok bool) {
	database, container, ok = strings.Cut(text, "/")
	if !ok {
		database, container = DefaultDatabase, text
	}
	return database, container, database != "" && container != "" && !strings.Contains(container, "/")
}

// parseURL reads scheme://host/database/container. A user or a query in the URL would be ignored silently, so parseURL
// refuses both.
func (a *Address) parseURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	// Cut before unescaping, so that a slash within a name does not separate.
	database, container, ok := strings.Cut(strings.Trim(u.EscapedPath(), "/"), "/")
	if !ok || database == "" || container == "" || strings.Contains(container, "/") {
		return false
	}
	if a.Database, err = url.PathUnescape(database); err != nil {
		return false
	}
	a.Container, err = url.PathUnescape(container)
	a.Endpoint = u.Scheme + "://" + u.Host
	return err == nil
}

// IsLoopback reports whether only this machine can reach the host.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
