package peer

import (
	"bytes"
	"math"
	"net"
	"reflect"
	"sync"
	"testing"
)

func TestValuesAreReadAsTheyWereWritten(t *testing.T) {
	for _, v := range []any{
		nil, true, false, uint8(200), uint16(1 << 15), uint32(math.MaxUint32), uint64(255), uint64(256),
		uint64(math.MaxUint64), int32(-1), int64(math.MinInt64),
		timestamp(-5),
		uuid{1, 15: 2},
		"", "é", symbol("s"),
		[]byte{},
		[]byte{0, 1},
		opaque{0x82, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		list{},
		list{"a", list{uint32(1)}, nil},
		dict{symbol("k"), "v", "other", int64(1)},
		described{uint64(0x24), list{}},
		described{symbol("x"), "y"},
	} {
		d := decoder{b: appendValue(nil, v)}
		if got := d.readValue(0); d.err != nil || len(d.b) > 0 || !reflect.DeepEqual(got, v) {
			t.Errorf("%#v came back as %#v, %v, %d bytes left", v, got, d.err, len(d.b))
		}
	}
}

func TestShortFormsAreRead(t *testing.T) {
	for text, want := range map[string]any{
		"\x41": true, "\x56\x01": true, "\x56\x00": false, "\x43": uint32(0), "\x44": uint64(0), "\x45": list{},
		"\x52\xff": uint32(255), "\x53\x10": uint64(16),
		"\x54\xff": int32(-1), "\x55\x80": int64(-128), "\xa0\x01x": []byte("x"), "\xa1\x02hi": "hi",
		"\xa3\x01s":            symbol("s"),
		"\xc0\x03\x01\xa1\x00": list{""}, "\xc1\x05\x02\xa3\x01k\x41": dict{symbol("k"), true},
		"\xe0\x06\x02\xa3\x01a\x01b": list{symbol("a"), symbol("b")},
	} {
		d := decoder{b: []byte(text)}
		if got := d.readValue(0); d.err != nil || len(d.b) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%x is read as %#v, %v, want %#v", text, got, d.err, want)
		}
	}
}

// FuzzValue wants an error or a value, which is written and read again as it is, whatever a client sends.
func FuzzValue(f *testing.F) {
	f.Add([]byte("\xc0\x03\x01\xa1\x00"))
	f.Add([]byte("\xf0\x00\x00\x00\x06\xff\xff\xff\xff\x43\x00"))
	f.Add(bytes.Repeat([]byte{0}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := decoder{b: b}
		v := d.readValue(0)
		if d.err != nil {
			return
		}
		again := decoder{b: appendValue(nil, v)}
		if got := again.readValue(0); again.err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%#v came back as %#v, %v", v, got, again.err)
		}
		_, _ = parseTransfer(batchFormat, b)
		_, _ = parseTransfer(0, b)
	})
}

// FuzzServe wants a connection to end, whatever a client sends.
func FuzzServe(f *testing.F) {
	c := &conn{}
	c.out = append(c.out, "AMQP\x03\x01\x00\x00"...)
	c.bufferFrame(frameSASL, 0, saslInit, list{symbol("ANONYMOUS")}, nil)
	c.out = append(c.out, "AMQP\x00\x01\x00\x00"...)
	c.bufferFrame(frameAMQP, 0, performOpen, list{"client", "host", uint32(512)}, nil)
	c.bufferFrame(frameAMQP, 0, performBegin, list{nil, uint32(0), uint32(100), uint32(100)}, nil)
	queue := described{uint64(targetNumber), list{"q"}}
	c.bufferFrame(frameAMQP, 0, performAttach, list{"to", uint32(0), false, nil, nil, nil, queue}, nil)
	c.bufferFrame(frameAMQP, 0, performTransfer, list{uint32(0), uint32(0), []byte{1}, uint32(0), false},
		appendSection(nil, sectionProperties, list{"id"}))
	any := dict{symbol(filterName), nil}
	c.bufferFrame(frameAMQP, 0, performAttach, list{
		"from", uint32(1), true, nil, nil,
		described{uint64(sourceNumber), list{"q", nil, nil, nil, nil, nil, nil, any}},
		nil,
	}, nil)
	c.bufferFrame(frameAMQP, 0, performFlow, list{
		uint32(0), uint32(100), uint32(0), uint32(100), uint32(1), uint32(0),
		uint32(5), nil, true,
	}, nil)
	c.bufferFrame(frameAMQP, 0, performClose, list{}, nil)
	f.Add(c.out)
	f.Fuzz(func(t *testing.T, sent []byte) {
		near, far := net.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() { _ = (&Broker{}).ServeConn(far) })
		wg.Go(func() {
			buf := make([]byte, 4096)
			for {
				if _, err := near.Read(buf); err != nil {
					return
				}
			}
		})
		_, _ = near.Write(sent)
		near.Close()
		wg.Wait()
	})
}
