package cosmosrest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Headers whose values the service checks although this server does nothing with them. A program with a wrong value
// would work here and fail there.

// checkedHeader is a header with a set of values, in lower case.
type checkedHeader struct {
	name   string
	values []string
	isList bool // several values, with commas between them
	want   string
}

// serializations are the service's formats of bodies, in lower case.
var serializations = []string{"jsontext", "cosmosbinary", "hybridrow"}

var checkedHeaders = []checkedHeader{
	{
		name: "X-Ms-Indexing-Directive", values: []string{"default", "include", "exclude"},
		want: "Default, Include or Exclude",
	},
	{
		name: wire.HeaderFormats, values: serializations, isList: true,
		want: "JsonText, CosmosBinary or HybridRow, or several of them with commas between them",
	},
	{
		name: wire.HeaderFormat, values: serializations,
		want: "JsonText, CosmosBinary or HybridRow",
	},
	{
		name: wire.HeaderDirection, values: []string{"forward", "reverse"},
		want: "Forward or Reverse",
	},
}

// checkHeaders refuses wrong values of headers about documents.
func (c *call) checkHeaders() error {
	if err := wire.RefuseVersion(c.in.Header(wire.HeaderVersion)); err != nil {
		return err
	}
	if c.in.Target.Kind != "docs" {
		return nil
	}
	for i := range checkedHeaders {
		h := &checkedHeaders[i]
		value := c.in.Header(h.name)
		if value == "" {
			continue
		}
		parts := []string{value}
		if h.isList {
			parts = strings.Split(value, ",")
		}
		for _, part := range parts {
			if !slices.Contains(h.values, strings.ToLower(strings.TrimSpace(part))) {
				return wire.BadRequest("One of the specified inputs is invalid. The header %s is %.64q: want %s",
					strings.ToLower(h.name), value, h.want)
			}
		}
	}
	// The SDKs also send this header when they ask for the account, and learn the account's level from the answer. So
	// the level is checked only for documents.
	level := c.in.Header(wire.HeaderConsistency)
	if level == "" || c.s.o.Lenient {
		return nil
	}
	return wire.RefuseStronger(level, c.s.o.Consistency)
}

// refusePreflight refuses the question of a browser whether a page of another origin may send requests. The service
// does the same, unless the account allows other origins.
func refusePreflight(in *wire.Request) error {
	if in.Method != http.MethodOptions {
		return nil
	}
	return wire.Errorf(http.StatusForbidden, 0, wire.CodeForbidden,
		"Forbidden: this server allows no requests from pages of other origins")
}
