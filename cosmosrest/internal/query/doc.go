// Package query serves a page of a query, or of the documents themselves, from a container.
//
// Within a request, a [Scan] visits the documents that a query may concern. A scan reads spans of the key space in
// order, and each span in the order of creation; its progress records how far a span was read. The rows of the
// documents fill a page. If rows depend on each other, they are all computed at once, and kept as a result while the
// client fetches their pages.
//
// Between requests, a [Continuation] records the end of a page, where the next page begins. A continuation contains a
// segment for each span that was begun, with the progress. If rows depend on each other, the place of the last row is
// in the continuation.
package query
