package servicebuspub

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/iotest"
)

// frameOf is a frame with a body.
func frameOf(body []byte) []byte {
	frame := append([]byte{0, 0, 0, 0, 2, 0, 0, 1}, body...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)))
	return frame
}

// dispositionOf is a disposition of a receiver with an encoded outcome.
func dispositionOf(role byte, outcome []byte) []byte {
	fields := append([]byte{role, 0x52, 7, 0x52, 9, 0x41}, outcome...)
	return frameOf(append([]byte{0x00, 0x53, performDisposition, 0xc0, byte(len(fields) + 1), 5}, fields...))
}

type reads struct {
	net.Conn
	io.Reader
}

func (r reads) Read(p []byte) (int, error) { return r.Reader.Read(p) }

func TestOnlyOutcomesThatAreNoAcceptanceAreReplaced(t *testing.T) {
	refused := strict(dispositionOf(0x41, []byte{0x00, 0x53, 0x26, 0x45}))
	if bytes.Contains(refused, []byte{0x53, 0x26}) || !bytes.Contains(refused, []byte(conditionRefused)) ||
		int(binary.BigEndian.Uint32(refused)) != len(refused) {
		t.Fatalf("a released message gives the frame %x", refused)
	}
	for _, test := range []struct {
		name  string
		frame []byte
		is    bool // it is a refusal
	}{
		{"accepted", dispositionOf(0x41, []byte{0x00, 0x53, 0x24, 0x45}), false},
		{"accepted, by a long number", dispositionOf(0x41, []byte{0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x24, 0x45}), false},
		{"rejected", dispositionOf(0x41, []byte{0x00, 0x53, 0x25, 0x45}), false},
		{"released", dispositionOf(0x41, []byte{0x00, 0x53, 0x26, 0x45}), true},
		{"released, by a long number", dispositionOf(0x41, []byte{0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x26, 0x45}), true},
		{"modified", dispositionOf(0x41, []byte{0x00, 0x53, 0x27, 0xc0, 3, 2, 0x41, 0x42}), true},
		{"an outcome with a name", dispositionOf(0x41, []byte{0x00, 0xa3, 1, 'x', 0x45}), true},
		{"no outcome", dispositionOf(0x41, []byte{0x40}), true},
		{"released by the sender", dispositionOf(0x42, []byte{0x00, 0x53, 0x26, 0x45}), false},
		{
			"a long frame with the bytes of a disposition",
			frameOf(append([]byte{0x00, 0x53, 0x14}, bytes.Repeat(dispositionOf(0x41, []byte{0x40}), 400)...)), false,
		},
		{"an empty frame", []byte{0, 0, 0, 8, 2, 0, 0, 0}, false},
		{"the name of the protocol", []byte("AMQP\x00\x01\x00\x00"), false},
		{"a disposition that is cut off", frameOf([]byte{0x00, 0x53, performDisposition, 0xc0, 9, 5, 0x41}), false},
	} {
		want := test.frame
		if test.is {
			want = refused
		}
		released := dispositionOf(0x41, []byte{0x00, 0x53, 0x26, 0x45})
		stream := bytes.Join([][]byte{[]byte("AMQP\x03\x01\x00\x00"), test.frame, test.frame, released}, nil)
		wanted := bytes.Join([][]byte{[]byte("AMQP\x03\x01\x00\x00"), want, want, refused}, nil)
		for how, cut := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader {
			return r
		}, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader, "with its end": iotest.DataErrReader} {
			got, err := io.ReadAll(&strictConn{Conn: reads{nil, cut(bytes.NewReader(stream))}})
			if err != nil || !bytes.Equal(got, wanted) {
				t.Errorf("%s, read %s: got %x, %v; want %x", test.name, how, got, err, wanted)
			}
		}
	}
}

func FuzzStrict(f *testing.F) {
	f.Add(dispositionOf(0x41, []byte{0x00, 0x53, 0x26, 0x45}))
	f.Add([]byte("AMQP\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, _ := io.ReadAll(&strictConn{Conn: reads{nil, bytes.NewReader(stream)}})
		cut, _ := io.ReadAll(&strictConn{Conn: reads{nil, iotest.OneByteReader(bytes.NewReader(stream))}})
		if !bytes.Equal(whole, cut) {
			t.Errorf("%x is read as %x, and byte by byte as %x", stream, whole, cut)
		}
	})
}
