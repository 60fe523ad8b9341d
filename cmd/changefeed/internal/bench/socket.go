package bench

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// The load generator's connection. A socket writes and reads HTTP itself, because net/http's client would take as
// much processor time as the server on the same machine, and so halve every figure.

// socket is a keep-alive connection.
type socket struct {
	conn   net.Conn
	in     *bufio.Reader
	host   string
	key    []byte
	buf    []byte
	answer answer
	date   string
	dated  int64 // Unix seconds of date

	followed string // ETag up to which mixed has read the feed; empty at first
}

// request is a request as a socket sends it.
type request struct {
	method, path string // path must not need escapes
	kind, link   string // both are part of the signature
	header       string // further header lines, each with its line end
	body         []byte
}

// answer is valid until the next request on its socket.
type answer struct {
	status       int
	etag         string
	items        int    // x-ms-item-count
	continuation string // x-ms-continuation
	charge       float64
	body         []byte
}

// socketTimeout limits the time of a request of the load generator.
const socketTimeout = time.Minute

// dialSocket connects to a server.
func dialSocket(host string, key []byte) (*socket, error) {
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return nil, fmt.Errorf("reach the server: %w", err)
	}
	return &socket{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), host: host, key: key}, nil
}

// sendAndRead sends a request and reads the answer.
func (w *socket) sendAndRead(r request) (*answer, error) {
	if err := w.send(r); err != nil {
		return nil, err
	}
	return &w.answer, w.read()
}

// send sends a request. send renews the date and the deadline once a second.
func (w *socket) send(r request) error {
	now := time.Now()
	if now.Unix() != w.dated {
		w.dated, w.date = now.Unix(), now.UTC().Format(http.TimeFormat)
		if err := w.conn.SetDeadline(now.Add(socketTimeout)); err != nil {
			return err
		}
	}
	b := append(w.buf[:0], r.method...)
	b = append(append(append(b, ' '), r.path...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, w.host...), "\r\nx-ms-version: 2020-07-15\r\nx-ms-date: "...)
	b = append(append(b, w.date...), "\r\nAuthorization: "...)
	b = append(append(b, w.sign(r)...), "\r\n"...)
	b = append(b, r.header...)
	if r.body != nil {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(r.body)), 10), "\r\n"...)
	}
	b = append(append(b, "\r\n"...), r.body...)
	w.buf = b
	if _, err := w.conn.Write(b); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	return nil
}

// sign returns the Authorization header of a request, computed as in every SDK with a key.
func (w *socket) sign(r request) string {
	mac := hmac.New(sha256.New, w.key)
	text := append([]byte(nil), bytes.ToLower([]byte(r.method))...)
	text = append(append(append(text, '\n'), r.kind...), '\n')
	text = append(append(text, r.link...), '\n')
	text = append(append(text, bytes.ToLower([]byte(w.date))...), "\n\n"...)
	mac.Write(text)
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// read reads an answer. The answer must have a length, as all of the server's answers have except backups.
func (w *socket) read() error {
	// The body's memory is reused, because garbage collection here would take processor time from the server.
	a := &w.answer
	*a = answer{body: a.body[:0]}
	line, err := w.line()
	if err != nil {
		return err
	}
	if len(line) < len("HTTP/1.1 200") {
		return fmt.Errorf("answer begins with %q: want a status line", line)
	}
	// The status comes after the protocol version, whose length is constant.
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return fmt.Errorf("answer begins with %q: want a status line", line)
	}
	length := 0
	for {
		line, err := w.line()
		if err != nil {
			return err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "Content-Length":
			length, err = strconv.Atoi(string(value))
		case "x-ms-request-charge":
			a.charge, err = strconv.ParseFloat(string(value), 64)
		case "etag":
			a.etag = string(value)
		case "x-ms-item-count":
			a.items, err = strconv.Atoi(string(value))
		case "x-ms-continuation":
			a.continuation = string(value)
		case "Transfer-Encoding":
			err = errors.New("chunked answer: want one with a length")
		}
		if err != nil {
			return err
		}
	}
	if cap(a.body) < length {
		a.body = make([]byte, length)
	}
	a.body = a.body[:length]
	if _, err := io.ReadFull(w.in, a.body); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

// line reads a line of the header, without its line end.
func (w *socket) line() ([]byte, error) {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// wantStatus returns an error if the answer has another status.
func (a *answer) wantStatus(statuses ...int) error {
	if slices.Contains(statuses, a.status) {
		return nil
	}
	return fmt.Errorf("status %d: want one of %v: %.300s", a.status, statuses, a.body)
}

// Close ends the connection.
func (w *socket) Close() error { return w.conn.Close() }
