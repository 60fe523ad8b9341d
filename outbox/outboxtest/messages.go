package outboxtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// wholeMessages sends messages with every field set, and data which a decoder would change: consumers check signatures,
// and read numbers beyond a float64.
func (s *suite) wholeMessages() {
	var want []outbox.Message
	for i, data := range []string{
		`{"name":"Ada"}`, `{"x":1.0,"y":1e400,"z":-0,"big":12345678901234567890,"x":2}`, `{"b" : 1 , "a":[ 1,2 ]}`,
		"{\n\t\"a\":\"b\"\r\n}",
		`{"\u0061\/":"\ud800","<&>":"\u2028` + "\u2028é😀" + `"}`, `null`, `7`, `"text"`, `[]`,
	} {
		m := message("k", i+1)
		m.TraceParent, m.TraceState = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
		m.Object, m.ObjectType = "o/1 é", "thing"
		m.Time = time.Date(2026, 3, 4, 5, 6, 7, 1+i, time.FixedZone("CET", 3600))
		m.Data = json.RawMessage(data)
		want = append(want, m)
	}
	s.publish(s.publisher(), want...)
	s.wantAll(want...)
}

// bareMessages sends messages of events without the members of newer versions.
func (s *suite) bareMessages() {
	m := outbox.Message{ID: "1", Key: "k", Action: "ThingDone", Source: "/things", Data: json.RawMessage(`{}`)}
	s.publish(s.publisher(), m)
	s.wantAll(m)
}

// hostileText sends text with a meaning for brokers, and keys with little difference. If a broker takes two keys for
// the same, their order is mixed; a refused key makes no progress.
func (s *suite) hostileText() {
	long := strings.Repeat("x", 199)
	texts := []string{
		"", ".", "..", "a.b", "a..b", "a b", " a", "a ", "a%2Eb", "a%20b", "a%", "A", "a", "_", "-", "*", ">", "a.*",
		"a.>", "$SYS", "a/b?c#d", `"a"`, `a\b`,
		"a\tb", "a\r\nb: c", "é", "e\u0301", "😀", "日本", "null", "[]", `["a"]`, "=", "==", "a=b;c,d", long + "y", long +
			"z", strings.Repeat("é", 200),
	}
	p := s.publisher()
	var want []outbox.Message
	for i, text := range texts {
		first, second := message(text, 1), message(text, 2)
		first.ID, second.ID = fmt.Sprintf("%d %s", i, text), fmt.Sprintf("%d%s2", i, text)
		first.Action = "Did" + text
		second.Source = "/things/" + text
		for _, m := range []outbox.Message{first, second} {
			if s.MaxText > 0 && max(utf8.RuneCountInString(m.ID), utf8.RuneCountInString(m.Key)) > s.MaxText {
				s.wantRefused(p, m)
				continue
			}
			s.publish(p, m)
			want = append(want, m)
		}
	}
	s.wantAll(want...)
}

// wantRefused expects a message to be Poison.
func (s *suite) wantRefused(p outbox.Publisher, m outbox.Message) {
	s.Helper()
	if n, err := p.Publish(s.Context(), []outbox.Message{m}); n != 0 || !feed.IsPoison(err) {
		s.Errorf("Publish of a message with the id %.20q and a key of %d characters: %d, %v; want 0 and Poison", m.ID,
			utf8.RuneCountInString(m.Key), n, err)
	}
}

// publishInOrder publishes the messages of a key in several calls, between those of other keys, and the second half
// with another publisher, as after a hand-over.
func (s *suite) publishInOrder() {
	var want []outbox.Message
	var p outbox.Publisher
	for call := range 10 {
		if call%5 == 0 {
			p = s.publisher()
		}
		for k := range 3 {
			msgs := series(fmt.Sprintf("k%d", k), call*7+1, call*7+7)
			s.publish(p, msgs...)
			want = append(want, msgs...)
		}
	}
	s.wantAll(want...)
	if n, err := p.Publish(s.Context(), nil); n != 0 || err != nil {
		s.Errorf("Publish of no messages: %d, %v", n, err)
	}
}

// manyMessages sends the messages of a key that was not relayed for a while.
func (s *suite) manyMessages() {
	msgs := series("k", 1, 5000)
	s.publish(s.publisher(), msgs...)
	s.wantAll(msgs...)
}

// largeMessages sends messages that fit into a request each, but not two in one request.
func (s *suite) largeMessages() {
	s.needsField(s.MaxData > 0, "MaxData")
	var msgs []outbox.Message
	for n, size := range []int{
		s.MaxData * 6 / 10, 100, s.MaxData, s.MaxData / 2, s.MaxData / 2, s.MaxData * 9 / 10,
		10,
	} {
		msgs = append(msgs, sized(message("k", n+1), size))
	}
	s.publish(s.publisher(), msgs...)
	s.wantAll(msgs...)
}

// sized returns a message with size bytes of data, which compression cannot shrink to nothing.
func sized(m outbox.Message, size int) outbox.Message {
	var text strings.Builder
	for n := 0; text.Len() < size; n++ {
		fmt.Fprintf(&text, "%x ", n*2654435761)
	}
	m.Data = json.RawMessage(`"` + text.String()[:max(size-2, 0)] + `"`)
	return m
}

// concurrentKeys makes as many calls at a time as a relay has keys.
func (s *suite) concurrentKeys() {
	const keys, calls, each = 40, 8, 5
	p := s.publisher()
	var want []outbox.Message
	var wg sync.WaitGroup
	for k := range keys {
		key := fmt.Sprintf("k%d", k)
		want = append(want, series(key, 1, calls*each)...)
		wg.Go(func() {
			for call := range calls {
				msgs := series(key, call*each+1, call*each+each)
				if n, err := p.Publish(s.Context(), msgs); n != len(msgs) || err != nil {
					s.Errorf("Publish of %d messages of key %s beside others: %d, %v", len(msgs), key, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	s.wantAll(want...)
}

// publishTwice publishes messages again, with the publisher that lost its answer and with the publisher of another
// relay. Users rely on the broker to recognize these messages.
func (s *suite) publishTwice() {
	first, msgs := s.publisher(), series("k", 1, 20)
	s.publish(first, msgs[:10]...)
	s.publish(first, msgs[5:15]...)
	second := s.publisher()
	s.publish(second, msgs[8:]...)
	s.publish(second, msgs[:3]...)
	got := s.received()["k"]
	s.inOrder(got, msgs)
	if !s.Deduplicates && len(got) == len(msgs) {
		s.Errorf("received each message once, from a broker that is said not to de-duplicate")
	}
	s.publish(s.publisher(), message("other", 1))
	if got := s.received()["other"]; len(got) != 1 {
		s.Errorf("received %s of another key, want 1 message", some(ids(got)))
	}
}
