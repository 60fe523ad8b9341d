// Package sql runs the query language of Azure Cosmos DB for NoSQL over JSON documents.
//
// A query is parsed, bound to its parameters, and run. One whose rows depend on one
// document each streams:
//
//	q, err := sql.Parse("SELECT * FROM c WHERE c.pk = @pk")
//	b, err := q.Bind([]sql.Parameter{{Name: "@pk", Value: []byte(`"x"`)}})
//	err = b.Rows(doc, func(row []byte) error { … })
//
// One that sorts, groups or compares rows collects them: [Bound.NewRun], [Run.Add],
// [Run.Finish].
//
// Before it reads anything, a caller asks the query where it can find its documents:
// [Bound.Pinned], [Bound.IDs] and [Bound.IDPrefix] say to which values the WHERE clause
// binds a path, and [Query.CrossPartition] what the service's gateway would refuse.
// [Bound.Plan] explains to a client how to run the query range by range and to merge the
// rows by itself.
//
// Documents are never decoded whole. Paths are looked up in their text, and what a row
// repeats of a document is its text, byte for byte. Of members with the same name, the last
// counts.
//
// Undefined is no null: what has no value is left out of rows, equals nothing, and neither
// passes nor fails a filter. Values of two types are different, but none is the greater
// one. Numbers are float64, strings sort by their UTF-8 bytes, characters are code points.
// User-defined functions, geography and vectors are not supported; what is not supported is
// an [Error] that names it.
package sql
