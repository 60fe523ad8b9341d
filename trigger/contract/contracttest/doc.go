// Package contracttest tests whether a program, in any language, keeps the contract of package contract. [Test] plays
// the processor: it starts the program, hands it batches whose documents say what the program shall do with them, and
// compares the outcomes. A library for another language is complete when a program that uses it passes.
//
//	report := func(r contracttest.Result) { fmt.Println(r) }
//	failed, err := contracttest.Test(ctx, []string{"node", "steered.mjs"}, contracttest.Options{}, report)
//
// `changefeed program test -- node steered.mjs` does the same. docs/program.md lists what the documents can say;
// [Handler] is such a handler in Go.
package contracttest
