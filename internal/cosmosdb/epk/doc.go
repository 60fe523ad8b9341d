// Package epk computes effective partition keys: the place of a logical partition key in the key space of a
// container. The results are exactly those of the Azure Cosmos DB service. The place decides which physical range
// stores the key, so a wrong bit would send a write to a range in which no reader looks for the key.
//
// A key has a component for each partition key path. internal/cosmosdb/pkey parses them from a key's JSON, and [Hash]
// computes the place:
//
//	place, err := epk.Hash(epk.HashV2, epk.Components{epk.String("London")})
//
// Places are upper-case hex strings, and the key space is [[Min], [Max]). Places are compared as plain strings.
// [Prefix] returns the part of the key space for the first levels of a hierarchical key. [Even] cuts the whole space
// into ranges with about the same number of keys, and [Mid] cuts a range in two.
//
// # Byte layout
//
// A component is a marker byte and a value. There are two forms: the first for hashing and, only in V1, the second
// for sorting.
//
//	component  marker  to be hashed                   to be sorted (V1)
//	undefined  00
//	null       01
//	false      02
//	true       03
//	number     05      float64, 8 bytes, low first    8 bits, then groups of 7 bits (sort.go)
//	string     08      UTF-8, then FF (00 in V1)      each byte + 1, then 00 (sort.go)
//
// The three kinds make a place from the components as follows. Each hash is MurmurHash3 with seed 0:
//
//	kind       place                                                    bytes
//	HashV1     32-bit hash as a number, then all components, sorted     3 to 7, and theirs
//	HashV2     x64 128-bit hash of all components, high byte first      16
//	MultiHash  as HashV2, each component by itself                      16, 32 or 48
//
// HashV2 and MultiHash clear the top two bits of every hash, so their places begin with 00 to 3F. HashV1 first cuts
// strings to 100 characters, so V1 keys with the same first 100 characters have the same place.
//
// # Caveats
//
// The empty key [] has the place "", at the beginning of the key space. The key for "no value" is [{}]. Some clients
// send [] instead of [{}]. The caller must translate this, because here the two keys differ.
//
// Numbers are float64, as in the service: integers beyond 2^53 may have the same place, and -0.0 is hashed by its own
// bits, so its place differs from that of 0.
//
// The Go SDK (azcosmos 1.5) computes V1 differently, because it follows a baseline file that does not concern
// routing; its V1 result leads to the wrong range. This package follows the .NET and Java SDKs, whose tests compare
// their results with the service.
package epk
