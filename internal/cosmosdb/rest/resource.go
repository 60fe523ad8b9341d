// Package rest has what every request to an account of Azure Cosmos DB needs: the resource that it is about, its
// signature, and the connections on which it is sent. Package cosmos sends those of a processor, package place those of
// commands.
package rest

import (
	"net/url"
	"strings"
)

// Version is the version of the API that Microsoft's SDKs ask for, which is therefore the best tried.
const Version = "2020-07-15"

// Resource is the subject of a request, in its path and in its signature.
type Resource struct {
	Kind string // dbs, colls, docs, pkranges; empty for the account
	Link string // the item, or what the feed belongs to, unescaped
	Path string // unescaped
	Raw  string // Path, escaped
}

// At returns the resource with this path: kinds and ids by turns.
// The link of a feed, whose path ends with a kind, is that of the resource which the
// feed belongs to: so the service signs it.
func At(segments ...string) Resource {
	var r Resource
	for i, s := range segments {
		if i%2 == 0 {
			r.Kind = s
		}
		r.Path += "/" + s
		r.Raw += "/" + url.PathEscape(s)
	}
	named := segments[:len(segments)-len(segments)%2]
	r.Link = strings.Join(named, "/")
	return r
}
