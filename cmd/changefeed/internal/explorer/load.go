package explorer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
)

// The limits of an import.
const (
	importWriters = 128 // each waits for an acknowledgement, and a store commits waiting writes together
	mostRefused   = 100 // that are named
)

// refused is a document that was not written.
type refused struct {
	Line  int    `json:"line"` // the document of an array, from 1
	Error string `json:"error"`
}

// imported is the result of an import.
type imported struct {
	Written int       `json:"written"`
	Refused int       `json:"refused"`
	First   []refused `json:"first_refused"`
	Charge  float64   `json:"charge"`
	Error   *string   `json:"error"` // why the input was not read to the end
}

// importItems writes the documents of the body, a document a line or an array, and replaces existing documents. The
// body is read as fast as documents are written, so only some documents are in memory. The dashboard bounds the pauses
// of the body.
func (e *Explorer) importItems(w http.ResponseWriter, r *http.Request) error {
	t, err := e.open(r)
	if err != nil {
		return err
	}
	l := &loader{target: t, result: imported{First: []refused{}}}
	next := documentsOf(r.Body)
	if err := l.load(r.Context(), next); err != nil {
		if l.result.Written+l.result.Refused == 0 {
			return usage.Error{Err: err}
		}
		text := err.Error()
		l.result.Error = &text
	}
	answer(w, http.StatusOK, l.result)
	return nil
}

// numbered is a document with the place in the input.
type numbered struct {
	line int
	text json.RawMessage
	err  error // of a line that is no document
}

// loader writes documents. A single goroutine writes all documents of an id, in their order.
type loader struct {
	target *items.Target

	mu     sync.Mutex
	result imported
}

// load writes documents until there are no more. Next returns io.EOF then.
func (l *loader) load(ctx context.Context, next func() (numbered, error)) error {
	var writing sync.WaitGroup
	var queues [importWriters]chan numbered
	for i := range queues {
		queues[i] = make(chan numbered)
		writing.Go(func() {
			for n := range queues[i] {
				l.write(ctx, n)
			}
		})
	}
	defer writing.Wait()
	defer func() {
		for _, q := range queues {
			close(q)
		}
	}()
	for {
		n, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n.err != nil:
			l.refuse(n.line, n.err)
			continue
		}
		d, err := l.target.Place(n.text)
		if err != nil {
			l.refuse(n.line, err)
			continue
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(d.ID))
		select {
		case queues[h.Sum32()%importWriters] <- n:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// write writes a document.
func (l *loader) write(ctx context.Context, n numbered) {
	written, err := l.target.Put(ctx, n.text, items.Write{})
	if err != nil {
		l.refuse(n.line, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Written++
	if written.Charge != nil {
		l.result.Charge += *written.Charge
	}
}

// refuse notes a document that was not written.
func (l *loader) refuse(line int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Refused++
	if len(l.result.First) < mostRefused {
		l.result.First = append(l.result.First, refused{line, flagInText.ReplaceAllString(err.Error(), "$1$2")})
	}
}

// documentsOf reads documents, a document a line or an array.
func documentsOf(r io.Reader) func() (numbered, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	line := 1
	if mark, _ := in.Peek(3); string(mark) == "\xef\xbb\xbf" { // of UTF-8, by some editors
		_, _ = in.Discard(len(mark))
	}
	for {
		next, err := in.Peek(1)
		if err != nil || !bytes.ContainsAny(next, " \t\r\n") {
			if err == nil && next[0] == '[' {
				return elementsOf(in)
			}
			return func() (n numbered, err error) {
				n, err = readLine(in, &line)
				return n, err
			}
		}
		if next[0] == '\n' {
			line++
		}
		_, _ = in.Discard(1)
	}
}

// errLong is why a document is refused.
var errLong = fmt.Errorf("the document has more than %d MB", maxDocument>>20)

// readLine reads the next line that is not blank. A line that is too long is read to the end, and refused.
func readLine(in *bufio.Reader, line *int) (n numbered, err error) {
	for {
		var text []byte
		tooLong := false
		for {
			part, err := in.ReadSlice('\n')
			if tooLong = tooLong || len(text)+len(part) > maxDocument; !tooLong {
				text = append(text, part...)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != nil && (!errors.Is(err, io.EOF) || len(text) == 0 && !tooLong) {
				return n, err
			}
			break
		}
		n = numbered{line: *line, text: bytes.TrimSpace(text)}
		*line++
		switch {
		case tooLong:
			n.err = errLong
		case len(n.text) == 0:
			continue
		default:
			n.err = checkObject(n.text)
		}
		return n, nil
	}
}

// checkObject refuses texts that are no JSON objects.
func checkObject(text []byte) error {
	all, err := items.Read(bytes.NewReader(text))
	switch {
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "line 1, ")) // of the input it is another line
	case len(all) > 1 || text[0] != '{':
		return errors.New("the line is not one JSON object: want one document a line")
	}
	return nil
}

// elementsOf reads the documents of an array. After invalid JSON there is no next document.
func elementsOf(in *bufio.Reader) func() (numbered, error) {
	bounded := &boundedReader{in, maxDocument}
	d := json.NewDecoder(bounded)
	index := 0
	return func() (n numbered, err error) {
		if index == 0 {
			if _, err := d.Token(); err != nil {
				return n, err
			}
		}
		index++
		bounded.left = maxDocument
		if !d.More() {
			if _, err := d.Token(); err != nil {
				return n, fmt.Errorf("document %d: the array does not end: want ]", index)
			}
			return n, endOf(io.MultiReader(d.Buffered(), in))
		}
		n.line = index
		if err := d.Decode(&n.text); err != nil {
			return n, fmt.Errorf("document %d: %w", index, err)
		}
		if n.text[0] != '{' {
			n.err = errors.New(`the document is no object: want one such as {"id":"1"}`)
		}
		return n, nil
	}
}

// endOf returns io.EOF if nothing but blanks is left.
func endOf(in io.Reader) error {
	left := bufio.NewReader(in)
	for {
		switch next, err := left.ReadByte(); {
		case err != nil:
			return err
		case !bytes.ContainsRune([]byte(" \t\r\n"), rune(next)):
			return errors.New("the input does not end after the array: want one array, or one document a line")
		}
	}
}

// boundedReader reads no more than some bytes for a document, because a decoder keeps the document in memory.
type boundedReader struct {
	in   io.Reader
	left int
}

// Read implements [io.Reader].
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLong
	}
	n, err := b.in.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
