// Package sql runs the query language of Azure Cosmos DB for NoSQL over JSON documents.
//
// A query is parsed, bound to its parameters, and run. If each row depends on only a single document, the query
// streams:
//
//	q, err := sql.Parse("SELECT * FROM c WHERE c.pk = @pk")
//	b, err := q.Bind([]sql.Parameter{{Name: "@pk", Value: []byte(`"x"`)}})
//	err = b.Rows(doc, func(row []byte) error { … })
//
// A query that sorts, groups or compares rows collects them: [Bound.NewRun], [Run.Add], [Run.Finish].
//
// Before reading documents, a caller can find out which documents the query needs: [Bound.Keys], [Bound.IDs] and
// [Bound.IDPrefix] return the values to which the WHERE clause limits a path. [Query.CrossPartition] returns the
// construct that the service's gateway would refuse. [Bound.Plan] tells a client how to run the query range by range
// and how to merge the rows.
//
// Documents are never decoded as a whole. Paths are looked up in the text, and a row repeats parts of a document byte
// for byte. If members have the same name, the last counts.
//
// Undefined is not null: an undefined value is left out of rows, equals no value, and neither passes nor fails a
// filter. Values of two types are different, but neither is greater. Numbers are float64, strings sort by their UTF-8
// bytes, characters are code points. User-defined functions are not supported; if a query uses an unsupported feature,
// the [Error] names the feature.
package sql
