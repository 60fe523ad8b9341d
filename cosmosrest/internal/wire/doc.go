// Package wire holds the REST protocol of Azure Cosmos DB as it travels: names of headers,
// statuses and the bodies of errors, limits, partition keys, continuation and session
// tokens, and the bodies of pages. It knows neither a store nor a query; a fact of the
// protocol that two files need belongs here.
package wire
