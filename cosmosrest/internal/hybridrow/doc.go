// Package hybridrow reads the batches of the .NET SDK and writes their answers. That SDK
// sends transactional batches and bulks in HybridRow, a binary format, and reads nothing
// else.
//
//	for op, err := range hybridrow.Operations(body) { ... }
//
//	b := hybridrow.AppendHeader(nil)
//	for i := range results {
//		b = hybridrow.AppendResult(b, &results[i])
//	}
//
// A body is a stream of rows, of which each begins with a version and the id of its
// schema. All integers are little endian:
//
//	segment header                       81 f0d8ff7f 01 length
//	record header, row                   81 f1d8ff7f length CRC-32, then so many bytes
//	record header, row ...               one row for each operation, or result
//
// A length of a header or row is believed only as far as there are bytes, and nothing is
// allocated by it: what is read lies within the body. The reader is stricter than the
// SDK's own, which takes a stream that was cut for a shorter one. Every error says what is
// wrong and where; it is the client's, and never a panic.
//
// A row has a presence byte, a bit for each field of a fixed place and each variable one;
// two int32, which have their place even when absent; the variable fields that are present,
// each after its length; and sparse fields until its end, each with its type and its path.
// A path is the number of a field in the schema, or a name. Fields of unknown names are
// passed over.
package hybridrow
