// Package pkey handles the partition keys of documents: the partition key paths of a container, the text of a key in
// requests, the canonical text under which a key is stored, and, with internal/cosmosdb/epk, the key's place in the
// key space.
//
// A document has a value at each path of its container. Its key is the JSON array of these values:
//
//	paths, err := pkey.ParsePaths([]string{"/tenant", `/address/"the city"`})
//	key, err := pkey.Of(paths, values)            // ["contoso",{}]
//	k, err := pkey.Parse(header)                  // as a client sends it
//	place, err := epk.Hash(kind, k.Components())
//
// Stores compare keys as text, so a key must have only a single text. [Of] and [Parse] write strings as encoding/json
// does, without its escapes for HTML. They write numbers as the shortest text of their float64, and zero without a
// sign. If a document lacks a path, its value is written as {}. This differs from null: the service has separate
// logical partitions for the two. [feed.Key] writes the same text for the same values.
//
// If a path or key is invalid, the error is a [feed.ErrBadRequest] that shows the fault.
package pkey
