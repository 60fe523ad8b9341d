// Package cosmosrest serves the Cosmos DB REST protocol over a [docstore.DB], so that
// unmodified SDKs work against it: databases, containers, items, queries, batches and
// both change feeds, with splits, deletes and time to live.
//
// A [Server] is an [http.Handler]:
//
//	db, err := docstore.Open(dir, docstore.Options{})
//	...
//	server, err := cosmosrest.New(db, cosmosrest.Options{})
//	...
//	http.ListenAndServe("127.0.0.1:8081", server)
//
// In a test, [NewTestServer] is all of that over a store in memory, and ends with the test.
//
// It is strict unless told otherwise: what the service refuses is refused, with the
// same status, sub-status and code, so that a program that works here works there. What
// it does not have (stored procedures, triggers, users, permissions) is a 400 that says
// so. See docs/server.md for the differences.
//
// # How a request goes
//
// [Server.ServeHTTP] reads the path (path.go), checks who asks (auth.go), and calls the
// handler of the operation (operation.go) with a call, which knows the request and
// writes the answer (call.go). A handler returns an error; fault.go gives it the
// status, sub-status and code that the service has for it.
package cosmosrest
