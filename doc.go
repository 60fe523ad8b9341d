// Package changefeed is a change feed processor for Azure Cosmos DB and stores like it.
package changefeed
