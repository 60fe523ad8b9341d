// Package contract is the contract between a change feed processor and a long-lived program, which handles the batches
// of all leases of an instance in one process. docs/program.md describes the contract for authors of programs in other
// languages; this package implements both ends in Go.
//
// The processor's end is a [Host], which is a [feed.Handler]: it sends batches to the program and returns the outcomes
// that the program reports. The program's end is [Serve], which calls a feed.Handler for each batch:
//
//	err := contract.Serve(ctx, os.NewFile(3, "from host"), os.NewFile(4, "to host"), handler, contract.ProgramOptions{
//		Client: "mailer 1.4", Batches: 8,
//	})
//
// A message is a JSON object on a separate line, in UTF-8. The member "type" names the kind of the message. Both ends
// ignore unknown members. An unknown kind breaks the contract.
//
//	host                                program
//	 |  hello: version, unit, instance     |
//	 |------------------------------------>|
//	 |     hello: version, batches at once |
//	 |<------------------------------------|
//	 |  batch 1 ------------------------->  |   the program has as many batches at once
//	 |  batch 2 ------------------------->  |   as its hello says
//	 |  <------------------------- done 2   |   in any order
//	 |  cancel 1: lost, within 1.5 s ---->  |
//	 |  <--------------------- released 1   |   done and failed are possible too
//	 |  stop: within 10 s --------------->  |   no further batch comes
//	 |  (end of the pipe) --------------->  |   the program ends
//
// Each batch has exactly one answer: done, failed or released, also after a cancel. So the host knows when the program
// does not work on the batch any more, and another instance may take the lease.
//
// The package knows neither processes nor flags: package program starts programs and restarts them.
package contract
