// Package changefeedtest proves handlers and stores for package changefeed, and injects faults into stores.
//
// [Torture] proves that your handler has the same effects although changes are redelivered. The rest is for stores.
//
// [TestSource], [TestLeaseStore], [TestCommitter] and [TestDeadLetters] are the conformance suites: they check every
// sentence of the documentation of [feed.Source], [feed.LeaseStore], [feed.Committer] and [feed.LetterBox]. Your store
// is ready when they pass:
//
//	func TestConformance(t *testing.T) {
//		h := changefeedtest.Harness{
//			Virtual:   true, // each test in a bubble of testing/synctest
//			Container: func(t *testing.T, c changefeedtest.Container) changefeedtest.Store { … },
//			Leases:    func(t *testing.T) changefeedtest.LeaseContainer { … },
//			Lacks:     []changefeedtest.Ability{changefeedtest.Merging},
//		}
//		t.Run("source", func(t *testing.T) { changefeedtest.TestSource(t, h) })
//		t.Run("leases", func(t *testing.T) { changefeedtest.TestLeaseStore(t, h) })
//		t.Run("commits", func(t *testing.T) { changefeedtest.TestCommitter(t, h) })
//	}
//
// A store declares each [Ability] that it lacks. The suite logs each skipped test, because a test skipped in silence
// proves nothing. If the store has a declared ability after all, the suite reports an error too.
//
// The comment of each test says why a processor needs the property. Most tests are short; if a failure puzzles you,
// read the comment before the code.
//
// [Faults] wraps the same interfaces and injects faults: errors before and after the effect, conflicts, throttling,
// delays, blackouts, drawn from a seed or planned call by call. [Counts] wraps them and counts requests. The result of
// a wrapper has the optional interfaces ([feed.Waiter], [feed.Counter], [feed.Locator], [feed.Follower]) of the wrapped
// store, and no others, so a processor behaves as with the store itself. Calls of a [feed.Sequencer] have no faults.
//
// The suites never sleep. If time must pass, it passes in a bubble, or through [Harness].Pass.
package changefeedtest
