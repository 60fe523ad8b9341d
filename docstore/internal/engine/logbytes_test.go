package engine

import (
	"errors"
	"hash/crc32"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// scratching is a file that changes the bytes that it is given, as files may, and has room for so many.
type scratching struct {
	vfs.File
	room int
}

var errNoRoom = errors.New("no room")

func (f *scratching) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	f.room -= n
	clear(b)
	if n < len(b) {
		return n, errNoRoom
	}
	return n, nil
}

// The checksum is that of the bytes that the library has written. After a write that was not whole it is unknown.
func TestTheChecksumOfALogIsThatOfWhatWasWritten(t *testing.T) {
	file := &scratching{room: 10}
	log := countedLog{file, &logBytes{}}
	for _, text := range []string{"abcd", "efgh"} {
		if _, err := log.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := log.written.checksum(), crc32.Checksum([]byte("abcdefgh"), castagnoli); got != want {
		t.Errorf("checksum %08x, want %08x", got, want)
	}
	if n, err := log.Write([]byte("ijkl")); n != 2 || !errors.Is(err, errNoRoom) {
		t.Errorf("%d bytes were written, %v", n, err)
	}
	file.room = 10
	if _, err := log.Write([]byte("mnop")); err != nil {
		t.Fatal(err)
	}
	if got := log.written.checksum(); got != 0 {
		t.Errorf("checksum %08x after a write that was not whole, want none", got)
	}
}
