package cosmosrest

// What requests cost, in request units (RU). The model is a simple one of this server;
// the service's figures depend on its indexes, and change. See docs/server.md.
const (
	minCharge = 1 // of any request

	readKB       = 1       // a point read, for each KB begun
	writeKB      = 5.5     // a create, upsert, replace or delete, for each KB begun of the document
	patchMore    = 1       // a patch, above the write of the document that it makes
	scanItem     = 0.05    // a query or feed, for each document that it read
	scanKB       = 0.5     // and for each KB of them
	unitWork     = 1 << 19 // a query, for so many units of work, which take about a millisecond: if that is more
	countItem    = 0.001   // a count, for each change that it counted
	chargeManage = 5       // a change of a database, container or offer
)

// kilobytes is the size of a document as it is charged.
func kilobytes(bytes int) float64 { return float64(max(bytes+1023, 1024) / 1024) }

// chargeRead is what a point read of a document of this size costs. One that finds
// nothing, or that the client has already, is a read of 0 bytes.
func chargeRead(bytes int) float64 { return readKB * kilobytes(bytes) }

// chargeWrite is what a create, upsert or replace costs that leaves a document of this
// size, or a delete of it.
func chargeWrite(bytes int) float64 { return writeKB * kilobytes(bytes) }

// chargePatch is what a patch costs that leaves a document of this size.
func chargePatch(bytes int) float64 { return chargeWrite(bytes) + patchMore }

// chargeCount is what a count of so many changes costs.
func chargeCount(items int64) float64 { return max(minCharge, countItem*float64(items)) }

// chargeQuery is what a query costs that read so much and did so much work, whichever is more.
func chargeQuery(items, bytes, work int) float64 {
	return max(chargeScan(items, bytes), float64(work/unitWork))
}

// chargeScan is what a query or a page of a feed costs that read so many documents with
// so many bytes together.
func chargeScan(items, bytes int) float64 {
	return max(minCharge, scanItem*float64(items)+scanKB*float64(bytes)/1024)
}
