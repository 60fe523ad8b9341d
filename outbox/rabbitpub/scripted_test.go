package rabbitpub_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/rabbitpub"
)

// A scripted broker answers each message as its routing key says: what RabbitMQ does rarely, on demand. Whether
// RabbitMQ does it so make rabbitmq shows.
const (
	ack      = "ack"
	nack     = "nack"
	noRoute  = "no route" // returned, and then confirmed
	tooLarge = "too large"
	silence  = "silence"
	hangUp   = "hang up"
)

// serveScripted talks to one client, as far as a publisher goes.
func serveScripted(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	if _, err := io.ReadFull(r, make([]byte, 8)); err != nil { // the protocol header
		return
	}
	method(conn, 0, 10, 10, []byte("\x00\x09\x00\x00\x00\x00\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US")) // start
	var key string
	var tag uint64
	for {
		kind, channel, payload, err := readFrame(r)
		if err != nil {
			return
		}
		if kind == 2 && deliveryMode(payload) != amqp.Persistent {
			key = nack // such a message is gone when the broker is restarted
		}
		if kind == 3 { // the body, which is one frame here
			tag++
			if !answer(conn, channel, key, tag) {
				return
			}
		}
		if kind != 1 {
			continue
		}
		switch class, id := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]); [2]uint16{class, id} {
		case [2]uint16{10, 11}: // start-ok
			method(conn, 0, 10, 30, []byte("\x00\x10\x00\x02\x00\x00\x00\x00")) // tune
		case [2]uint16{10, 40}: // open
			method(conn, 0, 10, 41, []byte{0})
		case [2]uint16{10, 50}: // close
			method(conn, 0, 10, 51, nil)
			return
		case [2]uint16{20, 10}: // channel.open
			tag = 0
			method(conn, channel, 20, 11, make([]byte, 4))
		case [2]uint16{85, 10}: // confirm.select
			method(conn, channel, 85, 11, nil)
		case [2]uint16{60, 40}: // publish
			exchange := payload[6:]
			rest := exchange[1+exchange[0]:]
			key = string(rest[1 : 1+rest[0]])
		}
	}
}

// deliveryMode reads the header of a message: its flags, and the properties that come before the mode.
func deliveryMode(header []byte) byte {
	flags, rest := binary.BigEndian.Uint16(header[12:]), header[14:]
	for _, flag := range []uint16{1 << 15, 1 << 14} { // the content type and encoding
		if flags&flag != 0 {
			rest = rest[1+rest[0]:]
		}
	}
	if flags&(1<<13) != 0 { // headers
		rest = rest[4+binary.BigEndian.Uint32(rest):]
	}
	if flags&(1<<12) == 0 {
		return 0
	}
	return rest[0]
}

func answer(conn net.Conn, channel uint16, key string, tag uint64) (goOn bool) {
	number := append(binary.BigEndian.AppendUint64(nil, tag), 0)
	switch key {
	case ack:
		method(conn, channel, 60, 80, number)
	case nack:
		method(conn, channel, 60, 120, number)
	case noRoute:
		method(conn, channel, 60, 50, []byte("\x01\x38\x08NO_ROUTE\x00\x00")) // 312
		frame(conn, 2, channel, append([]byte{0, 60, 0, 0}, make([]byte, 10)...))
		method(conn, channel, 60, 80, number)
	case tooLarge:
		text := "PRECONDITION_FAILED - message size 3 is larger than configured max size 2"
		method(conn, channel, 20, 40, append(append([]byte{1, 150, byte(len(text))}, text...), 0, 60, 0, 40)) // 406
	case hangUp:
		return false
	}
	return true
}

func method(w io.Writer, channel, class, id uint16, arguments []byte) {
	frame(w, 1, channel, append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), id), arguments...))
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
	return outbox.Message{ID: fmt.Sprintf("%s/%d", key, seq), Key: key, Action: "Done", Source: "/contacts", Seq: uint64(seq), Data: []byte(`{}`)}
}

// newScripted makes a publisher to a scripted broker.
func newScripted(t *testing.T) *rabbitpub.Publisher {
	t.Helper()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	return newPublisher(t, "amqp://guest:guest@localhost/", "contacts", rabbitpub.Options{Client: amqp.Config{Dial: func(string, string) (net.Conn, error) {
		near, far := net.Pipe()
		serving.Go(func() { serveScripted(far) })
		return near, nil
	}}})
}

func TestOnlyWhatIsConfirmedAndNotReturnedIsAccepted(t *testing.T) {
	for _, c := range []struct {
		answer string
		want   error
		poison bool
	}{
		{nack, rabbitpub.ErrNotConfirmed, false}, {noRoute, rabbitpub.ErrNoRoute, false}, {tooLarge, outbox.ErrTooLarge, true}, {hangUp, nil, false},
	} {
		t.Run(c.answer, func(t *testing.T) {
			p := newScripted(t)
			msgs := []outbox.Message{event(ack, 1), event(ack, 2), event(c.answer, 3), event(ack, 4)}
			n, err := p.Publish(t.Context(), msgs)
			if n != 2 || err == nil || c.want != nil && !errors.Is(err, c.want) || changefeed.IsPoison(err) != c.poison {
				t.Errorf("%d, %v", n, err)
			}
			if n, err := p.Publish(t.Context(), msgs[3:]); n != 1 || err != nil {
				t.Errorf("the next one: %d, %v", n, err)
			}
		})
	}
}

func TestMessagesSurviveARestartOfTheBroker(t *testing.T) {
	p := newScripted(t)
	m := event(ack, 1)
	m.TraceParent, m.Object, m.ObjectType = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "o", "order"
	if n, err := p.Publish(t.Context(), []outbox.Message{m}); n != 1 || err != nil {
		t.Errorf("a broker that keeps persistent messages only has %d of 1: %v", n, err)
	}
}

func TestACallEndsWithItsContextThoughNothingIsConfirmed(t *testing.T) {
	p := newScripted(t)
	gone := errors.New("gone")
	ctx, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
	defer stop()
	if n, err := p.Publish(ctx, []outbox.Message{event(ack, 1), event(silence, 2), event(ack, 3)}); n != 1 || !errors.Is(err, gone) {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := p.Publish(t.Context(), []outbox.Message{event(ack, 2)}); n != 1 || err != nil {
		t.Errorf("the next one: %d, %v", n, err)
	}
}

func TestALongKeyIsRoutedByItsHash(t *testing.T) {
	p := newScripted(t)
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err := p.Publish(ctx, []outbox.Message{event(strings.Repeat("k", 300), 1)}) // to which the script has no answer
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v: a long key is refused before it is sent", err)
	}
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
