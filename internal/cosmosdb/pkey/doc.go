// Package pkey knows the partition keys of documents: the paths at which a container has
// them, the text in which a key travels, the one text under which it is stored, and, with
// internal/cosmosdb/epk, its place in the key space.
//
// A document has a value at each path of its container. The key is the JSON array of
// these values:
//
//	paths, err := pkey.ParsePaths([]string{"/tenant", `/address/"the city"`})
//	key, err := pkey.Of(paths, values)            // ["contoso",{}]
//	k, err := pkey.Parse(header)                  // as a client sends it
//	place, err := epk.Hash(kind, k.Components())
//
// Stores compare keys as text, so one key must have one text: [Of] and [Parse] write
// strings as encoding/json does, without its escapes for HTML, numbers as the shortest
// text of their float64, zero without a sign, and {} for the value of a document that
// lacks the path. That {} is not null: the service places both in logical partitions of
// their own. [feed.Key] writes the same text for the same values.
//
// A wrong path or key is a [feed.ErrBadRequest] that shows what is wrong.
package pkey
