// Package rest contains the parts of every request to an account of Azure Cosmos DB: the resource, the signature, and
// the connections. Package cosmos sends the requests of a processor, and package place those of commands.
package rest

import (
	"net/url"
	"strings"
)

// Version is the API version that Microsoft's SDKs use, so this version is the best tested.
const Version = "2020-07-15"

// Resource is the subject of a request, in its path and in its signature.
type Resource struct {
	Kind string // dbs, colls, docs, pkranges; empty means the account
	Link string // the item, or the owner of the feed, unescaped
	Path string // unescaped
	Raw  string // Path, escaped
}

// At returns the resource with this path, in which kinds and ids alternate. The path of a feed ends with a kind. As
// the service requires for signatures, the link of a feed is that of the resource to which the feed belongs.
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
