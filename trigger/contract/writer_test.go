package contract

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

// A buffer is used for another line only when its line is written, or dropped, however long the program does not read.
func TestABufferHasALineUntilItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		w := newWriter()
		go w.writeLines(write, func() { t.Error("a write has failed") })
		send := func(c byte, refuse func() error) {
			buffer := w.takeBuffer()
			if len(*buffer) != 0 {
				t.Errorf("a buffer has %d bytes before its line", len(*buffer))
			}
			*buffer = append(append(*buffer, bytes.Repeat([]byte{c}, 1000)...), '\n')
			w.sendBuffer(buffer, refuse)
		}
		r := bufio.NewReader(read)
		for range 3 {
			send('a', nil)
			synctest.Wait() // it is being written
			send('b', nil)
			send('x', func() error { return errors.New("no") })
			send('c', nil)
			synctest.Wait()
			for _, want := range []string{"a", "b", "c"} {
				line, err := r.ReadString('\n')
				if err != nil || line != strings.Repeat(want, 1000)+"\n" {
					t.Errorf("got %.20q…, %v, want %s", line, err, want)
				}
				synctest.Wait()
				send('d', nil)
			}
			for range 3 {
				if line, err := r.ReadString('\n'); err != nil || line != strings.Repeat("d", 1000)+"\n" {
					t.Errorf("got %.20q…, %v, want d", line, err)
				}
			}
		}
		w.endLines()
	})
}

// A batch of 4 MB now and then must not keep this memory.
func TestALongBufferIsNotKept(t *testing.T) {
	w := newWriter()
	for _, size := range []int{maxBuffer + 1, 4 * maxBuffer} {
		buffer := make([]byte, size)
		w.freeBuffer(&buffer)
		if got := w.takeBuffer(); cap(*got) > maxBuffer {
			t.Errorf("a buffer of %d bytes is kept", size)
		}
	}
}
