package cosmos

import "net/http"

// The names of headers, in the canonical form of net/http, because net/http would rewrite a name in another form for
// each request. Names that the protocol documents are not explained here.
const (
	headerActivity     = "X-Ms-Activity-Id"
	headerAIM          = "A-Im" // which change feed
	headerCapabilities = "X-Ms-Cosmos-Sdk-Supportedcapabilities"
	headerCharge       = "X-Ms-Request-Charge"
	headerContainerRID = "X-Ms-Cosmos-Intended-Collection-Rid"
	headerContentType  = "Content-Type"
	headerContinuation = "X-Ms-Continuation"
	headerDate         = "X-Ms-Date"
	headerEndEPK       = "X-Ms-End-Epk"
	headerETag         = "Etag"
	headerIfMatch      = "If-Match"
	headerIfModified   = "If-Modified-Since"
	headerIfNoneMatch  = "If-None-Match"
	headerKey          = "X-Ms-Documentdb-Partitionkey"
	headerKeyType      = "X-Ms-Read-Key-Type"
	headerLSN          = "Lsn"
	headerMaxItems     = "X-Ms-Max-Item-Count"
	headerPending      = "X-Changefeed-Count-Pending" // of changefeed's own server
	headerPolling      = "X-Ms-Cosmos-Max-Polling-Interval"
	headerRangeID      = "X-Ms-Documentdb-Partitionkeyrangeid"
	headerSession      = "X-Ms-Session-Token"
	headerStartEPK     = "X-Ms-Start-Epk"
	headerTentative    = "X-Ms-Cosmos-Allow-Tentative-Writes"
	headerVersion      = "X-Ms-Version"
	headerWireFormat   = "X-Ms-Cosmos-Changefeed-Wire-Format-Version"

	headerBatch        = "X-Ms-Cosmos-Is-Batch-Request"
	headerBatchAtomic  = "X-Ms-Cosmos-Batch-Atomic"
	headerBatchOrdered = "X-Ms-Cosmos-Batch-Ordered"

	headerIsQuery        = "X-Ms-Documentdb-Isquery"
	headerQuery          = "X-Ms-Documentdb-Query"
	headerCrossPartition = "X-Ms-Documentdb-Query-Enablecrosspartition"
)

// The values of the header Content-Type.
const (
	jsonType  = "application/json"
	queryType = "application/query+json"
)

// fields are the headers of a request: so few that a map would cost more than it saves.
type fields []field

// field is a header, its name in canonical form.
type field struct{ name, value string }

// header returns the fields as an http.Header. Their values share a slice, which saves an allocation for each.
func (f fields) header() http.Header {
	h, values := make(http.Header, len(f)), make([]string, len(f))
	for i, own := range f {
		values[i] = own.value
		h[own.name] = values[i : i+1 : i+1]
	}
	return h
}

// has reports whether there is a header of this name.
func (f fields) has(name string) bool {
	for _, h := range f {
		if h.name == name {
			return true
		}
	}
	return false
}

// set sets a header.
func (f *fields) set(name, value string) {
	for i := range *f {
		if (*f)[i].name == name {
			(*f)[i].value = value
			return
		}
	}
	*f = append(*f, field{name, value})
}
