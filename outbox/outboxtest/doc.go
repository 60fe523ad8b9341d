// Package outboxtest proves publishers of package outbox, and stands in for a broker.
//
// [TestPublisher] is the conformance suite: it holds an [outbox.Publisher] to every sentence of
// that interface's documentation, with a broker that goes away and comes back, and with text
// that no broker was made for. A new publisher is done when it passes:
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
// What a [Broker] cannot do is nil, and each case that is left out for that says so, because
// a case that is left out in silence proves nothing.
//
// [Memory] is a broker for tests of relays and of code around them; [Line] is a network that can be cut.
package outboxtest
