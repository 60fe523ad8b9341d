// Package changefeedtest proves stores for package changefeed, and troubles them.
//
// [TestSource], [TestLeaseStore], [TestCommitter] and [TestDeadLetters] are the
// conformance suites: they hold a [feed.Source], a [feed.LeaseStore], a
// [feed.Committer] and a [feed.LetterBox] to every sentence of those
// interfaces' documentation. A new store is done when they pass:
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
// A store declares each [Ability] that it lacks, and each test that is left out for
// that is logged, because a test that is skipped in silence proves nothing. A
// declaration that the store belies is an error too.
//
// The comment of each test says why a processor needs the property. Most are short;
// where a failure puzzles you, read it before the code.
//
// [Faults] wraps the same interfaces with trouble: errors before and after the effect,
// conflicts, throttling, delays, blackouts, drawn from a seed or planned call by call.
// [Counts] wraps them and counts requests. The result of a wrapper has the optional
// interfaces ([feed.Waiter], [feed.Counter], [feed.Locator],
// [feed.Follower]) of the wrapped store, and no others, so a processor behaves as
// with the store itself; a [feed.Sequencer] is asked without a fault.
//
// The suites never sleep. Where time must pass it passes in a bubble, or through
// [Harness].Pass.
package changefeedtest
