// Package cosmosrest serves the Cosmos DB REST protocol over a [docstore.DB], so that
// unmodified SDKs work against it: databases, containers, items, queries, batches and both
// change feeds, with splits, deletes and time to live.
//
// A [Server] is an [http.Handler]:
//
//	db, err := docstore.Open(dir, docstore.Options{})
//	...
//	server, err := cosmosrest.New(db, cosmosrest.Options{})
//	...
//	http.ListenAndServe("127.0.0.1:8081", server)
//
// In a test, package cosmostest is all of that over a store in memory.
//
// It is strict unless told otherwise: what the service refuses is refused, with the same
// status, sub-status and code, so that a program that works here works there. What it does
// not have (stored procedures, triggers, users, permissions) is a 400 that says so. See
// docs/server.md for the differences.
//
// # How a request goes
//
// [Server.ServeHTTP] makes a call of the request (call.go): what is asked, who asks, what
// is answered. It reads the path, finds out who asks, and calls the operation
// (operation.go), a function of the call that answers it or returns an error; errors.go
// gives that the status, sub-status and code that the service has for it. What travels is
// written in internal/wire, who may do what in internal/auth, what a request may use in
// internal/meter. Queries are read and compiled by internal/sql, and run over a container,
// page by page, by internal/query.
package cosmosrest
