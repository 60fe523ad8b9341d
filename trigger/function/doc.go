// Package function runs the functions of an Azure Functions app with a custom handler: a batch of changes is an
// invocation of a function. The custom handler is the same program, in any language, that Azure's host would start.
//
//   - [ReadApp] reads an [App] from its files, and obeys or refuses each of their settings.
//   - An [App] is what the files of an app say: a [Program], and the [Function]s with a Cosmos DB [Trigger].
//   - A [Host] keeps the program of the app running, and [Host.Handler] makes the [Handler] of a function, which is a
//     [feed.Handler] for a processor.
//   - An [Upserter] writes the documents of an [Output], the output binding cosmosDB.
//
// For example:
//
//	host, err := function.NewHost(app, function.HostOptions{})
//	...
//	host.Start(ctx)
//	defer host.Close()
//	handler := host.Handler(&app.Functions[0], map[string]function.Upserter{"copies": copies})
//	processor, err := changefeed.New(orders, leases, handler, changefeed.Options{HandlerTimeout: 2 * app.Timeout})
//	...
//	err = processor.Run(ctx)
//
// All functions of an app share one program, so they share a Host. Set Options.HandlerTimeout longer than
// [App.Timeout], because only the Timeout of the app ends a program that hangs.
//
// # The program
//
// The program listens at 127.0.0.1, at the port in FUNCTIONS_CUSTOMHANDLER_PORT. It is ready when it answers GET /
// with anything at all. Lines of its standard output are logged as information, lines of standard error as errors, or
// as warnings if they contain "warn".
//
// A program that ends is started again, whatever its exit code, after a pause of 100 ms, which doubles up to 30 s as
// long as no invocation is answered. Azure starts a program that has ended with 0 never again. A program which does not
// listen any more is ended and started again too. At the end the program receives SIGTERM, and SIGKILL after
// [HostOptions.Grace]. On Linux the program dies with the process of its host.
//
// # Invocations
//
// An invocation is POST /NAME, with the body that Azure sends: the batch is encoded twice, so a handler decodes the
// body, then the text Data.NAME, and then the text in it. The documents are byte for byte as the account has them, with
// _lsn as the last member; Azure rewrites texts that look like dates. With [Trigger.AllVersions] a change is an object
// with current, previous and metadata. These headers are not Azure's:
//
//	Changefeed-Lease      the token of the lease
//	Changefeed-Range      its range of effective partition keys, min-max
//	Changefeed-Instance   the name of the processor's instance
//	Changefeed-Epoch      the number of the owner of the lease: each later owner has a higher number
//	Changefeed-Attempt    1 the first time, then one more each time that the batch has failed
//	Changefeed-Drain      the seconds which this invocation has left when the processor stops, if they are known
//
// The request ends when the lease is lost, and when the processor stops and the drain is over: the program sees that
// its connection is closed, and that is the only notice. Another instance may receive the same changes soon. A program
// that goes on does no harm to the position, because a position is stored under the ETag of the lease. A server of
// net/http sees a closed connection only after it has read the body to the end.
//
// # Answers
//
// The answer is that of Azure: 2xx with the type application/json and an object, of which Outputs, Logs and ReturnValue
// count, in any case. All else is a failure:
//
//	4xx 5xx                        the batch has failed; Retry-After is the shortest pause before the next attempt
//	3xx                            followed, up to 50 times
//	2xx without a body, or null    the batch has failed: on Azure the invocation would hang until functionTimeout
//	2xx with another type          the batch has failed, also if the body is JSON
//	2xx that is no such object     the batch has failed
//	a closed connection            the batch has failed, if the program goes on
//	the program has ended          the batch has failed, if it was the only one that the program had
//	no answer within App.Timeout   the batch has failed, and the program is ended and started again
//
// Outputs are written after the answer, one document after the other; if a write fails, the batch has failed. An object
// that is returned has values of outputs too, unless an output has the name $return. A text that is valid base64 is
// decoded first, as Azure does, unless [Output.IsBinary] is set. An output that the function does not have is ignored,
// as on Azure, and the log names it once.
//
// # Failures
//
// A failed batch is tried again: the position moves only after success. On Azure a function without a retry policy
// loses its batch at the first failure. With a [Retry], a failure has the delay of the policy. The attempts are counted
// in the lease, so they survive the process, and another instance goes on counting. When the policy is exhausted, an
// error is logged once, and the FailurePolicy of the processor goes on alone; its MaxAttempts counts all attempts, so
// set it higher than [Retry.Max] plus one.
//
// If the program ends with several invocations in hand, nobody knows which of them is at fault. None of them counts as
// an attempt, and they come again one at a time, until one of them is blamed. If the program is ended because one
// invocation takes too long, the others have at most 2 s to end, and are not at fault. If the program cannot be
// started, no batch is at fault.
package function
