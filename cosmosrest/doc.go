// Package cosmosrest serves the Cosmos DB REST protocol over a [docstore.DB]. Unmodified SDKs work with the server:
// databases, containers, items, queries, batches and both change feeds, with splits, deletes and time to live.
//
// A [Server] is an [http.Handler]:
//
//	db, err := docstore.Open(dir, docstore.Options{})
//	...
//	server, err := cosmosrest.New(db, cosmosrest.Options{})
//	...
//	http.ListenAndServe("127.0.0.1:8081", server)
//
// In a test, use package cosmostest, which does all this over a store in memory.
//
// The server is strict by default: if the service refuses a request, the server refuses the same request with the
// same status, sub-status and code. So a program that works here works there. If you use a feature that the server
// does not have (stored procedures, triggers, users, permissions), you get a 400 that says so. See docs/server.md for
// the differences.
//
// # How a request goes
//
// [Server.ServeHTTP] creates a call for the request (call.go), which contains the request, its sender and its answer.
// Then the path is parsed, the sender is authenticated, and the operation is called (operation.go). An operation is a
// function of the call that answers the request or returns an error; errors.go maps the error to the service's
// status, sub-status and code. Package internal/wire contains the protocol's texts, internal/auth the rights, and
// internal/meter the budgets of requests. Package internal/sql parses and compiles queries, and internal/query runs
// them over a container, page by page.
package cosmosrest
