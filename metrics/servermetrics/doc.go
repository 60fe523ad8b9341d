// Package servermetrics shows a server of package cosmosrest, and the store that it serves, in OpenTelemetry.
//
//	m, err := servermetrics.New(servermetrics.Options{})
//	if err != nil { … }
//	db, err := docstore.Open("data", docstore.Options{})
//	if err != nil { … }
//	stop, err := m.Observe(db)
//	if err != nil { … }
//	defer stop()
//	server, err := cosmosrest.New(db, cosmosrest.Options{RequestDone: m.RequestDone})
//
// This is a package of its own, and no part of package metrics, because it imports the server and the store. A program
// that only runs a processor imports package metrics, and contains neither.
//
// # Instruments
//
// Names follow the semantic conventions where these have one: http.server.* for requests. All others begin with
// changefeed. The table has the attributes of each instrument, with how many values each may have. No attribute holds
// an address, an id, a path or a text of an error, so the number of series is limited. db.operation.name is that of
// [cosmosrest.RequestDone]. The status codes are those of the protocol, of which the server has about 20; error.type
// is the status code of an answer from 500 on, and otherwise absent. http.request.method is one of the methods of
// HTTP, or _OTHER.
//
//	http.server.request.duration      s               answered requests
//	                                                  by db.operation.name (33), http.request.method (10),
//	                                                  http.response.status_code, url.scheme (2), error.type
//	changefeed.server.request_charge  {request_unit}  answered requests
//	                                                  by db.operation.name (33)
//	changefeed.server.refused         {request}       requests refused because of their sender, the load or the store
//	                                                  by http.response.status_code (4)
//	changefeed.server.clock_skew      s               how far the clock of a client is ahead of the server's
//	changefeed.store.fsync.duration   s               syncs of the log to the disk
//
// The status codes of changefeed.server.refused are 401 (the key or the token is wrong or missing), 403 (the sender
// lacks the right, or its clock is wrong), 429 (the throughput is used up, or the server has too much to do) and 503
// (the disk is full, or the store has failed). After Metrics.Observe each of them begins at 0, so that a first refusal
// shows as an increase.
//
// A read of the change feed may wait for a change, and its duration contains the wait: look at query_change_feed by
// itself.
//
// The skew is that of the client whose clock is furthest off, of the requests that a key of the account has signed in
// this minute and the minute before; without such requests it is absent. A skew is negative if the clock of the client
// is behind. Clients date their requests to the second, so the skew of a clock that is right is 0 or -1. From 15
// minutes on the server refuses the requests; they count here too. A token has no date, so the skew of its sender is
// unknown.
//
// Gauges of the store, from [Metrics.Observe], which are absent after [docstore.DB.Close]:
//
//	changefeed.store.waiting    {write}     writes without an answer
//	changefeed.store.failed     1           1 if the store has failed and refuses everything, otherwise 0
//	changefeed.store.full       1           1 if the store refuses writes for lack of room, otherwise 0
//	changefeed.store.disk.free  By          free space of the volume; absent if unknown
//	changefeed.store.disk.size  By          size of the volume; absent if unknown
//	changefeed.store.size       By          size of the files in the store's directory
//	changefeed.store.documents  {document}  documents of all containers
package servermetrics
