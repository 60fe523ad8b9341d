package wire

import "strings"

// The format of an answer with documents: JSON text, or Cosmos binary JSON. As in the service, no header of the answer
// says which of the two it is; its first byte does.

// formatBinary is the name of Cosmos binary JSON in the headers of a request.
const formatBinary = "CosmosBinary"

// WantsBinary reports whether the client wants documents in binary JSON. If the client accepts both, the service
// answers queries in binary, as tests of the .NET SDK show. The values of both headers have been checked. In the
// service the list of accepted formats has no effect on feeds; here it has if it is exactly CosmosBinary, which no SDK
// sends with a feed.
func (r *Request) WantsBinary() bool {
	if format := r.Header(HeaderFormat); format != "" {
		return strings.EqualFold(format, formatBinary)
	}
	list := r.Header(HeaderFormats)
	if r.Method == "GET" && r.Target.Feed {
		return list == formatBinary
	}
	for name := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(name), formatBinary) {
			return true
		}
	}
	return false
}
