package service

// The cost of requests, in request units (RU). This is a simple model of the embedded store and its server; the
// service's figures depend on its indexes, and change. See docs/server.md.
const (
	MinCharge    = 1 // of any request
	ManageCharge = 5 // of a change of a database, container or offer

	readKB    = 1     // a point read, for each started KB
	writeKB   = 5.5   // a create, upsert, replace or delete, for each started KB of the document
	patchMore = 1     // a patch, in addition to the write of the new document
	scanItem  = 0.05  // a query or feed, for each document read
	scanKB    = 0.5   // and for each KB of the documents
	countItem = 0.001 // a count, for each counted change
)

// kilobytes returns the size of a document for its charge, in started KB.
func kilobytes(bytes int) float64 { return float64(max(bytes+1023, 1024) / 1024) }

// ReadCharge returns the charge of a point read of a document with so many bytes. If the document does not exist, or
// the client has the document already, the read counts as 0 bytes.
func ReadCharge(bytes int) float64 { return readKB * kilobytes(bytes) }

// WriteCharge returns the charge of a create, upsert, replace or delete. bytes is the size of the stored document;
// for a delete, 0.
func WriteCharge(bytes int) float64 { return writeKB * kilobytes(bytes) }

// PatchCharge returns the charge of a patch whose new document has so many bytes.
func PatchCharge(bytes int) float64 { return WriteCharge(bytes) + patchMore }

// CountCharge returns the charge of counting so many changes.
func CountCharge(items int64) float64 { return max(MinCharge, countItem*float64(items)) }

// ScanCharge returns the charge of a query, or a page of a feed, that read so many documents with so many bytes in
// total.
func ScanCharge(items, bytes int) float64 {
	return max(MinCharge, scanItem*float64(items)+scanKB*float64(bytes)/1024)
}
