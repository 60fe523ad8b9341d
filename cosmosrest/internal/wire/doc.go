// Package wire contains the formats of the REST protocol of Azure Cosmos DB: names of headers, statuses and bodies of
// errors, limits, partition keys, continuation and session tokens, and the bodies of pages. The package depends on
// neither a store nor queries. If two files need the same fact of the protocol, the fact belongs here.
package wire
