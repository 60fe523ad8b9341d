// Package outboxtest proves publishers of package outbox, and contains a broker for tests.
//
// [TestPublisher] is the conformance suite. The suite checks every sentence of the documentation of [outbox.Publisher],
// with a temporarily unreachable broker, and with unusual text in messages. Your publisher is ready when it passes:
//
//	func TestConformance(t *testing.T) {
//		outboxtest.TestPublisher(t, func(t *testing.T) outboxtest.Broker {
//			server := start(t)
//			line := outboxtest.NewLine(t)
//			return outboxtest.Broker{
//				Publisher:    func(t *testing.T) outbox.Publisher { return connect(t, server.Addr(), line.Dial) },
//				Received:     server.messages,
//				Stop:         func(*testing.T) { line.Cut() },
//				Stall:        func(*testing.T) { line.Stall() },
//				Start:        func(*testing.T) { line.Mend() },
//				MaxData:      1 << 20,
//				Deduplicates: true,
//			}
//		})
//	}
//
// If your broker cannot do something, leave the field of [Broker] nil. The suite logs each case that it skips for this
// reason, because a case skipped in silence proves nothing.
//
// [Memory] is a broker for tests of relays and of code around them; [Line] is a network that you can cut.
package outboxtest
