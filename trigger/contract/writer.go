package contract

import (
	"io"
	"sync"
)

// writer writes lines one after another. A separate goroutine runs writeLines, because a program that does not read
// would block the callers.
type writer struct {
	more chan struct{} // has an element if queue or ended have changed

	buffers sync.Pool // of *[]byte: for long lines, which would otherwise be most of the garbage of a process

	mu    sync.Mutex
	queue []queued
	ended bool // no further line comes
}

// queued is a line to be written.
type queued struct {
	line   []byte
	refuse func() error // asked just before the line is written: an error drops the line; nil drops nothing
	buffer *[]byte      // that has the line, and is free after the write; nil if the line has memory of its own
}

func newWriter() *writer { return &writer{more: make(chan struct{}, 1)} }

// sendLine adds a line. The number of lines is limited by the number of batches that the other end accepts.
func (w *writer) sendLine(line []byte, refuse func() error) {
	w.sendQueued(queued{line: line, refuse: refuse})
}

// sendBuffer adds the line of a buffer.
func (w *writer) sendBuffer(buffer *[]byte, refuse func() error) {
	w.sendQueued(queued{*buffer, refuse, buffer})
}

func (w *writer) sendQueued(line queued) {
	w.mu.Lock()
	w.queue = append(w.queue, line)
	w.mu.Unlock()
	w.wakeWriter()
}

// maxBuffer is the size of a buffer that is kept.
const maxBuffer = 1 << 20

// takeBuffer returns an empty buffer.
func (w *writer) takeBuffer() *[]byte {
	if buffer, ok := w.buffers.Get().(*[]byte); ok {
		return buffer
	}
	return new([]byte)
}

// freeBuffer takes a buffer back.
func (w *writer) freeBuffer(buffer *[]byte) {
	if buffer != nil && cap(*buffer) <= maxBuffer {
		*buffer = (*buffer)[:0]
		w.buffers.Put(buffer)
	}
}

// endLines ends the writer after the lines that were sent.
func (w *writer) endLines() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.wakeWriter()
}

// wakeWriter tells writeLines that there is something to do.
func (w *writer) wakeWriter() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// writeLines writes until the end or the first error, which it reports to failed, and closes a closable writer.
func (w *writer) writeLines(to io.Writer, failed func()) {
	if c, ok := to.(io.Closer); ok {
		defer c.Close()
	}
	for range w.more {
		lines, ended := w.takeLines()
		for _, next := range lines {
			if next.refuse != nil && next.refuse() != nil {
				w.freeBuffer(next.buffer)
				continue
			}
			_, err := to.Write(next.line)
			w.freeBuffer(next.buffer)
			if err != nil {
				failed()
				return
			}
		}
		if ended {
			return
		}
	}
}

// takeLines returns the lines that are to be written, and whether no more lines come.
func (w *writer) takeLines() (lines []queued, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, w.queue = w.queue, nil
	return lines, w.ended
}
