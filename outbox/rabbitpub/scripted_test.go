package rabbitpub_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/rabbitpub"
)

// A scripted broker answers each message as its routing key says: what RabbitMQ does rarely, on demand. Whether
// RabbitMQ does it so make rabbitmq shows.
const (
	ack      = "ack"
	nack     = "nack"
	slow     = "slow"     // confirmed after a second
	noRoute  = "no route" // returned if it is mandatory, and then confirmed
	tooLarge = "too large"
	silence  = "silence"
	hangUp   = "hang up"
)

// scripted is a scripted broker, and what it has seen.
type scripted struct {
	dialing func() // before a connection is there; nil is nothing
	serving sync.WaitGroup

	mu                    sync.Mutex
	conns, open, channels int
	conn                  net.Conn // the last one
	got                   []sent
}

// sent is a message as it arrives.
type sent struct {
	exchange, key string
	isMandatory   bool
	contentType   string
	headers       map[string]string
	mode          byte
	id, typ       string
}

// dial connects a client.
func (s *scripted) dial(string, string) (net.Conn, error) {
	if s.dialing != nil {
		s.dialing()
	}
	near, far := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns, s.open, s.conn = s.conns+1, s.open+1, far
	s.serving.Go(func() {
		s.serve(far)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	})
	return near, nil
}

func (s *scripted) messages() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// serve talks to one client, as far as a publisher goes.
func (s *scripted) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	if _, err := io.ReadFull(r, make([]byte, 8)); err != nil { // the protocol header
		return
	}
	method(conn, 0, 10, 10, []byte("\x00\x09\x00\x00\x00\x00\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US")) // start
	var m sent
	tags := map[uint16]uint64{}
	for {
		kind, channel, payload, err := readFrame(r)
		if err != nil {
			return
		}
		if kind == 2 {
			m.readProperties(payload)
		}
		if kind == 3 { // the body, which is one frame here
			tags[channel]++
			if !s.answer(conn, channel, m, tags[channel]) {
				return
			}
		}
		if kind != 1 {
			continue
		}
		switch class, id := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]); [2]uint16{
			class,
			id,
		} {
		case [2]uint16{10, 11}: // start-ok
			method(conn, 0, 10, 30, []byte("\x00\x10\x00\x02\x00\x00\x00\x00")) // tune
		case [2]uint16{10, 40}: // open
			method(conn, 0, 10, 41, []byte{0})
		case [2]uint16{10, 50}: // close
			method(conn, 0, 10, 51, nil)
			return
		case [2]uint16{20, 10}: // channel.open
			tags[channel] = 0
			s.mu.Lock()
			s.channels++
			s.mu.Unlock()
			method(conn, channel, 20, 11, make([]byte, 4))
		case [2]uint16{85, 10}: // confirm.select
			method(conn, channel, 85, 11, nil)
		case [2]uint16{60, 40}: // publish
			exchange, rest := cutShort(payload[6:])
			key, rest := cutShort(rest)
			m = sent{exchange: exchange, key: key, isMandatory: rest[0] == 1}
		}
	}
}

// cutShort takes a short string from the front.
func cutShort(b []byte) (text string, rest []byte) {
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:]
}

// cutLong takes what has a length of four bytes from the front.
func cutLong(b []byte) (long, rest []byte) {
	n := 4 + binary.BigEndian.Uint32(b)
	return b[4:n], b[n:]
}

// readProperties reads the header of a message: its flags, and the properties that they say are there, in their order.
func (m *sent) readProperties(header []byte) {
	flags, rest := binary.BigEndian.Uint16(header[12:]), header[14:]
	has := func(bit int) bool { return flags>>bit&1 == 1 }
	if has(15) {
		m.contentType, rest = cutShort(rest)
	}
	if has(13) {
		var table []byte
		table, rest = cutLong(rest)
		m.headers = map[string]string{}
		for len(table) > 0 {
			var name string
			var value []byte
			name, table = cutShort(table)
			value, table = cutLong(table[1:]) // they are all texts
			m.headers[name] = string(value)
		}
	}
	if has(12) {
		m.mode, rest = rest[0], rest[1:]
	}
	if has(7) {
		m.id, rest = cutShort(rest)
	}
	if has(6) { // the time
		rest = rest[8:]
	}
	if has(5) {
		m.typ, _ = cutShort(rest)
	}
}

func (s *scripted) answer(conn net.Conn, channel uint16, m sent, tag uint64) (goOn bool) {
	s.mu.Lock()
	s.got = append(s.got, m)
	s.mu.Unlock()
	number := append(binary.BigEndian.AppendUint64(nil, tag), 0)
	key := m.key
	if m.mode != amqp.Persistent {
		key = nack // such a message is gone when the broker is restarted
	}
	switch key {
	case nack:
		method(conn, channel, 60, 120, number)
		return true
	case slow:
		time.Sleep(time.Second)
	case noRoute:
		if m.isMandatory {
			method(conn, channel, 60, 50, []byte("\x01\x38\x08NO_ROUTE\x00\x00")) // 312
			frame(conn, 2, channel, append([]byte{0, 60, 0, 0}, make([]byte, 10)...))
		}
	case tooLarge:
		text := "PRECONDITION_FAILED - message size 3 is larger than configured max size 2"
		method(conn, channel, 20, 40, append(append([]byte{1, 150, byte(len(text))}, text...), 0, 60, 0, 40)) // 406
		return true
	case silence:
		return true
	case hangUp:
		return false
	}
	method(conn, channel, 60, 80, number)
	return true
}

func method(w io.Writer, channel, class, id uint16, arguments []byte) {
	frame(w, 1, channel, append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), id),
		arguments...))
}

func frame(w io.Writer, kind byte, channel uint16, payload []byte) {
	b := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	_, _ = w.Write(append(append(b, payload...), 0xce)) // a client that has gone is seen at the next read
}

func readFrame(r io.Reader) (kind byte, channel uint16, payload []byte, err error) {
	head := make([]byte, 7)
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, 0, nil, err
	}
	payload = make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	_, err = io.ReadFull(r, payload)
	return head[0], binary.BigEndian.Uint16(head[1:]), payload, err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newPublisher(t *testing.T, url, exchange string, o rabbitpub.Options) *rabbitpub.Publisher {
	t.Helper()
	p, err := rabbitpub.New(url, exchange, o)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return p
}

func event(key string, seq int) outbox.Message {
	return outbox.Message{
		ID: fmt.Sprintf("%s/%d", key, seq), Key: key, Action: "Done", Source: "/contacts",
		Seq: uint64(seq), Data: []byte(`{}`),
	}
}

// newScripted makes a publisher to a scripted broker.
func newScripted(t *testing.T) (*rabbitpub.Publisher, *scripted) {
	t.Helper()
	s := &scripted{}
	t.Cleanup(s.serving.Wait)
	return newPublisher(t, "amqp://guest:guest@localhost/", "contacts",
		rabbitpub.Options{Client: amqp.Config{Dial: s.dial}}), s
}

func wantPublished(t *testing.T, p *rabbitpub.Publisher, msgs ...outbox.Message) {
	t.Helper()
	if n, err := p.Publish(t.Context(), msgs); n != len(msgs) || err != nil {
		t.Errorf("%d of %d are published, %v", n, len(msgs), err)
	}
}

func TestOnlyWhatIsConfirmedAndNotReturnedIsAccepted(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   error
		poison bool
	}{
		{nack, rabbitpub.ErrNotConfirmed, false},
		{noRoute, rabbitpub.ErrNoRoute, false},
		{tooLarge, outbox.ErrTooLarge, true},
		{hangUp, nil, false},
	} {
		t.Run(c.answer, func(t *testing.T) {
			p, _ := newScripted(t)
			msgs := []outbox.Message{event(ack, 1), event(ack, 2), event(c.answer, 3), event(ack, 4)}
			n, err := p.Publish(t.Context(), msgs)
			if n != 2 || err == nil || c.want != nil && !errors.Is(err, c.want) || feed.IsPoison(err) != c.poison {
				t.Errorf("%d, %v", n, err)
			}
			if n, err := p.Publish(t.Context(), msgs[3:]); n != 1 || err != nil {
				t.Errorf("the next one: %d, %v", n, err)
			}
		})
	}
}

// A broker that keeps persistent messages only refuses others.
func TestMessagesSurviveARestartOfTheBroker(t *testing.T) {
	p, _ := newScripted(t)
	m := event(ack, 1)
	m.TraceParent, m.Object, m.ObjectType = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "o", "order"
	wantPublished(t, p, m)
}

func TestACallEndsWithItsContextThoughNothingIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newScripted(t)
		begun, gone := time.Now(), errors.New("gone")
		ctx, stop := context.WithTimeoutCause(t.Context(), time.Second, gone)
		defer stop()
		n, err := p.Publish(ctx, []outbox.Message{event(ack, 1), event(silence, 2), event(ack, 3)})
		if took := time.Since(begun); n != 1 || !errors.Is(err, gone) || took != time.Second {
			t.Errorf("%d, %v after %v", n, err, took)
		}
		wantPublished(t, p, event(ack, 2))
	})
}

// Whoever has the lease now publishes the rest.
func TestACallThatWasGivenUpSendsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, broker := newScripted(t)
		ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer stop()
		if n, err := p.Publish(ctx, []outbox.Message{event(slow, 1), event(ack, 2)}); n != 0 ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
		time.Sleep(time.Minute)
		if got := broker.messages(); len(got) != 1 {
			t.Errorf("the broker has got %d messages, want the one that was under way", len(got))
		}
	})
}

func TestAMessageHasWhatRabbitMQGoesBy(t *testing.T) {
	p, broker := newScripted(t)
	long := strings.Repeat("k", 255)
	m := outbox.Message{
		ID: "1", Key: "Oslo", Action: "Done", Source: "/contacts", Data: []byte(`{}`),
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", TraceState: "a=1",
	}
	atLimit, above := m, m
	atLimit.ID, atLimit.Key, atLimit.Action = long, long, long
	above.ID, above.Key, above.Action = long+"i", long+"k", long+"a"
	wantPublished(t, p, m, atLimit, above)
	hashed := func(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }
	for i, want := range []sent{
		{key: "Oslo", id: "1", typ: "Done"},
		{key: long, id: long, typ: long},
		{key: hashed(above.Key), id: hashed(above.ID), typ: hashed(above.Action)},
	} {
		of := []outbox.Message{m, atLimit, above}[i]
		want.exchange, want.isMandatory, want.contentType, want.mode = "contacts", true, "application/json",
			amqp.Persistent
		want.headers = map[string]string{"key": of.Key}
		for name, value := range of.CloudEvent() {
			want.headers["cloudEvents:"+name] = value
		}
		want.headers["traceparent"], want.headers["tracestate"] = m.TraceParent, m.TraceState
		if diff := cmp.Diff(want, broker.messages()[i], cmp.AllowUnexported(sent{})); diff != "" {
			t.Errorf("message %d: %s", i, diff)
		}
	}
}

func TestAllMessagesHaveTheRoutingKeyOfTheOptions(t *testing.T) {
	broker := &scripted{}
	t.Cleanup(broker.serving.Wait)
	p := newPublisher(t, "amqp://guest:guest@localhost/", "",
		rabbitpub.Options{RoutingKey: "queue", Client: amqp.Config{Dial: broker.dial}})
	wantPublished(t, p, event("Oslo", 1))
	if m := broker.messages()[0]; m.key != "queue" || m.headers["key"] != "Oslo" {
		t.Errorf("the routing key is %q, and the header key %q", m.key, m.headers["key"])
	}
}

// A connection has some thousand channels at most.
func TestARefusedMessageCostsNoChannel(t *testing.T) {
	p, broker := newScripted(t)
	for range 5 {
		if n, err := p.Publish(t.Context(), []outbox.Message{event(ack, 1), event(nack, 2)}); n != 1 ||
			!errors.Is(err, rabbitpub.ErrNotConfirmed) {
			t.Errorf("%d, %v", n, err)
		}
	}
	if broker.channels != 1 {
		t.Errorf("%d channels were opened, one call after the other", broker.channels)
	}
}

func TestAConnectionThatEndedBetweenCallsIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, broker := newScripted(t)
		wantPublished(t, p, event(ack, 1))
		broker.conn.Close()
		synctest.Wait() // until the client has seen it
		wantPublished(t, p, event(ack, 2))
	})
}

func TestAClosedPublisherHasNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, broker := newScripted(t)
		closed := make(chan error, 1)
		broker.dialing = func() { // it is closed while it connects
			go func() { closed <- p.Close() }()
			synctest.Wait()
		}
		for range 2 {
			if n, err := p.Publish(t.Context(), []outbox.Message{event(ack, 1)}); n != 0 || err == nil ||
				!strings.Contains(err.Error(), "publisher is closed") {
				t.Errorf("%d, %v", n, err)
			}
		}
		must(t, <-closed)
		synctest.Wait()
		if broker.conns != 1 || broker.open != 0 {
			t.Errorf("%d connections were made and %d are open, want one that is closed", broker.conns, broker.open)
		}
		broker.conn.Close()
	})
}

func TestAURLThatIsNoneIsRefused(t *testing.T) {
	for _, url := range []string{"", "http://localhost", "amqp://relay:secret@%zz/"} {
		p, err := rabbitpub.New(url, "contacts", rabbitpub.Options{})
		if err == nil {
			p.Close()
			t.Errorf("%q is taken", url)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: it has the password", err)
		}
	}
}
