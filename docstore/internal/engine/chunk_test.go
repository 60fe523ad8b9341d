package engine

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// FuzzLogFile: whatever is in a log or a manifest, its reader comes to an end and hands out records that are in it.
func FuzzLogFile(f *testing.F) {
	f.Add([]byte{}, uint32(1))
	f.Add(bytes.Repeat([]byte{0}, 40), uint32(1))
	f.Add([]byte("\x00\x01\x02\x03\x05\x00\x05\x01\x00\x00\x00hello"), uint32(1))
	f.Fuzz(func(t *testing.T, file []byte, log uint32) {
		m := newManifest()
		read := 0
		err := newChunks(bytes.NewReader(file), log).eachRecord(func(record []byte, ok bool) error {
			if read += len(record); read > len(file) {
				t.Fatalf("%d bytes of records in a file of %d", read, len(file))
			}
			if ok {
				_ = m.applyEdit(record) // only must come to an end
				_, _, _ = batchHead(record)
			}
			return nil
		})
		if errors.Is(err, io.ErrNoProgress) {
			t.Error(err)
		}
		_ = m.liveFiles()
	})
}
