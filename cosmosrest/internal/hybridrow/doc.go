// Package hybridrow reads the batches of the .NET SDK and writes their answers. This SDK sends transactional batches
// and bulks in HybridRow, a binary format, and accepts answers only in this format.
//
//	for op, err := range hybridrow.Operations(body) { ... }
//
//	b := hybridrow.AppendHeader(nil)
//	for i := range results {
//		b = hybridrow.AppendResult(b, &results[i])
//	}
//
// A body is a stream of rows. Each row begins with a version and the id of its schema. All integers are
// little-endian:
//
//	segment header                       81 f0d8ff7f 01 length
//	record header, row                   81 f1d8ff7f length CRC-32, then so many bytes
//	record header, row ...               one row for each operation, or result
//
// The reader checks each length of a header or row against the available bytes, and never uses a length to allocate
// memory: all results are slices of the body. The reader is stricter than the SDK's own, which accepts a truncated
// stream as a shorter stream. Every error describes the fault and its place. An invalid body is the client's error,
// and never causes a panic.
//
// A row has a presence byte, with a bit for each fixed field and each variable field. Two int32 follow, which take
// their bytes even if they are absent; then the present variable fields, each after its length; then sparse fields
// until the end, each with its type and its path. A path is the number of a field in the schema, or a name. Fields
// with unknown names are skipped.
package hybridrow
