package wire

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// The rest of a body whose request is refused before the body was read. Many clients send a whole request before they
// read the answer. If the server closes a connection while bytes are still to come, the system resets the connection,
// and such a client loses the answer. So the server reads and drops the rest, within limits.

const (
	shortRest = 256 << 10        // bytes dropped before the answer, so the connection can be reused
	longRest  = 128 << 20        // bytes dropped after the answer
	restPause = 10 * time.Second // time in which the rest must come
)

// SkipShort drops a short rest of the body, and reports whether the connection can be reused because the body has
// been read to its end.
func (r *Request) SkipShort() bool {
	if r.http.ContentLength > shortRest || r.Late {
		return false
	}
	conn := http.NewResponseController(r.w)
	timed := conn.SetReadDeadline(time.Now().Add(restPause)) == nil
	_, err := io.CopyN(io.Discard, r.http.Body, shortRest+1)
	if timed {
		_ = conn.SetReadDeadline(time.Time{}) // otherwise the old deadline would end the next request
	}
	return errors.Is(err, io.EOF)
}

// Outlive allows the answer to be sent before the body has come. After the answer has been written, the caller must
// call drop, which reads the rest of the body; then the connection is closed. HTTP/2 does not need this, because its
// answers are sent at once, and no reset takes them back. Neither does a client that waits for permission to send its
// body.
func (r *Request) Outlive() (drop func()) {
	conn := http.NewResponseController(r.w)
	if r.http.ProtoMajor != 1 || r.http.Header.Get("Expect") != "" || conn.EnableFullDuplex() != nil {
		return func() {}
	}
	return func() {
		// The deadline stays: after this time, no more bytes of this connection are read.
		if conn.Flush() == nil && conn.SetReadDeadline(time.Now().Add(restPause)) == nil {
			_, _ = io.CopyN(io.Discard, r.http.Body, longRest) // the client has its answer already
		}
	}
}
