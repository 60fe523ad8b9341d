// Package query serves a page of a query, or of the documents themselves, from a container.
//
// Of a request: a [Scan] visits the documents that a query can be about. It reads spans of
// the key space in order, each in the order of last writes, and knows by its progress how
// far a span was read. The rows of the documents fill a page. Rows that depend on each
// other are computed all at once, and kept as a result while the pages of it are fetched.
//
// On the wire: a [Continuation] is the end of a page, from which the next one goes on. It
// has a segment for each span that was begun, with its progress, or the place of the last
// row among those that depend on each other.
package query
