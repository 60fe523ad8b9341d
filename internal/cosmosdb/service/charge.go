package service

// What requests cost, in request units (RU). The model is a simple one of the embedded store and its server; the
// service's figures depend on its indexes, and change. See docs/server.md.
const (
	MinCharge    = 1 // of any request
	ManageCharge = 5 // of a change of a database, container or offer

	readKB    = 1     // a point read, for each KB begun
	writeKB   = 5.5   // a create, upsert, replace or delete, for each KB begun of the document
	patchMore = 1     // a patch, above the write of the document that it makes
	scanItem  = 0.05  // a query or feed, for each document that it read
	scanKB    = 0.5   // and for each KB of them
	countItem = 0.001 // a count, for each change that it counted
)

// kilobytes is the size of a document as it is charged.
func kilobytes(bytes int) float64 { return float64(max(bytes+1023, 1024) / 1024) }

// ReadCharge is the charge of a point read of a document with so many bytes. One that finds nothing, or only that the
// client has the document already, is a read of 0 bytes.
func ReadCharge(bytes int) float64 { return readKB * kilobytes(bytes) }

// WriteCharge is the charge of a create, upsert or replace that leaves a document with so many bytes, and of a delete,
// which leaves none.
func WriteCharge(bytes int) float64 { return writeKB * kilobytes(bytes) }

// PatchCharge is the charge of a patch that leaves a document with so many bytes.
func PatchCharge(bytes int) float64 { return WriteCharge(bytes) + patchMore }

// CountCharge is the charge of counting so many changes.
func CountCharge(items int64) float64 { return max(MinCharge, countItem*float64(items)) }

// ScanCharge is the charge of a query, or a page of a feed, that read so many documents with so many bytes in all.
func ScanCharge(items, bytes int) float64 {
	return max(MinCharge, scanItem*float64(items)+scanKB*float64(bytes)/1024)
}
