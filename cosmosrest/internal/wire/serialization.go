package wire

import (
	"slices"
	"strings"
)

// The format of an answer with documents: JSON text, or Cosmos binary JSON. As in the service, no header of the answer
// says which of the two it is; its first byte does.

// formatBinary is the name of Cosmos binary JSON in the headers of a request.
const formatBinary = "CosmosBinary"

// formats are the names of formats, in lower case. This server answers HybridRow only to batches in HybridRow.
var formats = []string{"jsontext", strings.ToLower(formatBinary), "hybridrow"}

// WantsBinary reports whether the client wants documents in binary JSON. If the client accepts both, the service
// answers queries in binary.
//
// Both headers have the rules of the service, as tests of the .NET SDK show them: a wrong value of the first is a 400,
// and a wrong value of the second, which lists the formats that the client accepts, counts as text. In the service the
// second has no effect on feeds; here it has if it is exactly CosmosBinary, which no SDK sends with a feed.
func (r *Request) WantsBinary() (bool, error) {
	switch format := r.Header(HeaderFormat); {
	case format == "":
	case strings.EqualFold(format, formatBinary):
		return true, nil
	case strings.EqualFold(format, "JsonText"):
		return false, nil
	default:
		return false, BadRequest("x-ms-documentdb-content-serialization-format is %.64q: want JsonText or CosmosBinary",
			format)
	}
	list := r.Header(HeaderFormats)
	if list == "" || r.Method == "GET" && r.Target.Feed {
		return list == formatBinary, nil
	}
	binary := false
	for name := range strings.SplitSeq(strings.ToLower(list), ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(formats, name) {
			return false, nil
		}
		binary = binary || name == formats[1]
	}
	return binary, nil
}
