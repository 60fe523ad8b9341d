package wire

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// The rest of a body whose request is refused before the body was read. Many clients send a
// whole request before they read anything. If the server closes a connection on which
// something is still to come, the system answers that with a reset, which takes the refusal
// from such a client. So the rest is read and dropped, within bounds.

const (
	shortRest = 256 << 10        // bytes that are dropped before the refusal, so that the connection can go on
	longRest  = 128 << 20        // bytes that are dropped behind the refusal
	restPause = 10 * time.Second // in which the rest has to come
)

// SkipShort drops the rest of the body if that is short, and reports whether the connection
// can go on: nothing of this request is to come.
func (r *Request) SkipShort() bool {
	if r.http.ContentLength > shortRest || r.Late {
		return false
	}
	conn := http.NewResponseController(r.w)
	timed := conn.SetReadDeadline(time.Now().Add(restPause)) == nil
	_, err := io.CopyN(io.Discard, r.http.Body, shortRest+1)
	if timed {
		_ = conn.SetReadDeadline(time.Time{}) // or the end of the time would end the next request
	}
	return errors.Is(err, io.EOF)
}

// Outlive lets the answer leave before the body has come, and makes drop read what is left
// of the body, when the answer has been written. The connection is closed after that.
// HTTP/2 does without: its answers leave at once, and no reset takes them back. So does a
// client that waits for leave to send its body.
func (r *Request) Outlive() (drop func()) {
	conn := http.NewResponseController(r.w)
	if r.http.ProtoMajor != 1 || r.http.Header.Get("Expect") != "" || conn.EnableFullDuplex() != nil {
		return func() {}
	}
	return func() {
		// The deadline stays: after it nothing more is read of this connection.
		if conn.Flush() == nil && conn.SetReadDeadline(time.Now().Add(restPause)) == nil {
			_, _ = io.CopyN(io.Discard, r.http.Body, longRest) // the client is told already
		}
	}
}
