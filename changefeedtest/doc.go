// Package changefeedtest proves stores for package changefeed, and troubles them.
//
// [TestSource], [TestLeaseStore] and [TestCommitter] are the conformance suites: they
// hold a [changefeed.Source], a [changefeed.LeaseStore] and a [changefeed.Committer] to
// every sentence of those interfaces' documentation. A new store is done when they
// pass:
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
// An [Ability] that the store lacks is declared, and each test that it costs is logged.
// A declaration that the store belies is an error too.
//
// [Faults] wraps the same interfaces with trouble: errors before and after the effect,
// conflicts, throttling, delays, blackouts, drawn from a seed or planned call by call.
// [Counts] wraps them and counts requests. What a wrapper returns has the optional
// interfaces ([changefeed.Waiter], [changefeed.Counter], [changefeed.Follower]) that
// the wrapped store has, and no others.
//
// The suites never sleep. Where time must pass it passes in a bubble, or through
// [Harness].Pass.
package changefeedtest
