// Package epk computes effective partition keys: the place of a logical partition key
// in the key space of a container, exactly as the Azure Cosmos DB service computes it.
// The place decides which physical range stores the key, so a wrong bit sends a write
// to a range where no reader looks for it.
//
// A key has a component for each partition key path; internal/cosmosdb/pkey reads them from the
// JSON in which a key travels, and [Hash] places them:
//
//	place, err := epk.Hash(epk.HashV2, epk.Components{epk.String("London")})
//
// Places are upper-case hex strings, and the key space is [[Min], [Max]): they compare
// as plain strings. [Prefix] gives the part of that space which belongs to the first
// levels of a hierarchical key, [Even] cuts the whole space into ranges that hold about
// equally many keys, and [Mid] cuts a range in two.
//
// # Byte layout
//
// A component is a marker byte and its value. It is written in two ways: to be hashed,
// and, by V1 alone, to be sorted.
//
//	component  marker  to be hashed                   to be sorted (V1)
//	undefined  00
//	null       01
//	false      02
//	true       03
//	number     05      float64, 8 bytes, low first    8 bits, then groups of 7 bits (sort.go)
//	string     08      UTF-8, then FF (00 in V1)      each byte + 1, then 00 (sort.go)
//
// The three kinds make a place of the components as follows, each hash being
// MurmurHash3 with seed 0:
//
//	kind       place                                                    bytes
//	HashV1     32-bit hash as a number, then all components, sorted     3 to 7, and theirs
//	HashV2     x64 128-bit hash of all components, high byte first      16
//	MultiHash  as HashV2, each component by itself                      16, 32 or 48
//
// HashV2 and MultiHash clear the top two bits of every hash, so their places start with
// 00 to 3F. HashV1 first cuts strings to 100 characters, so V1 keys that agree in their
// first 100 characters share a place.
//
// # Caveats
//
// The empty key [] has the place "", where the key space begins; the key that stands
// for "no value" is [{}]. Some clients shorten the latter to the former, which the
// caller has to translate, because here the two differ.
//
// Numbers are float64, as in the service: integers beyond 2^53 may share a place, and
// -0.0 hashes by its own bits, apart from 0.
//
// The Go SDK (azcosmos 1.5) computes V1 differently, because it follows a baseline file
// that is not about routing; its V1 result finds the wrong range. This package follows
// the .NET and Java SDKs, whose tests compare them with the service.
package epk
