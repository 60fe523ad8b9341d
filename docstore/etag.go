package docstore

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"sync/atomic"
)

// tagger makes ETags that never repeat, not even after a restart or in a store restored from a copy. In these cases
// the counter starts again, so a tag begins with a random number, which is new in each run.
type tagger struct {
	run  string
	next *atomic.Uint64
}

func newTagger() tagger {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	return tagger{run: fmt.Sprintf("%08x-%04x-%04x", b[:4], b[4:6], b[6:]), next: &atomic.Uint64{}}
}

// tag returns the next ETag, with its quotes. The tag is a GUID, like the ETags of the service.
func (t tagger) tag() string {
	var digits, short [48]byte
	n := strconv.AppendUint(digits[:0], t.next.Add(1)|1<<63, 16) // 16 digits
	b := append(append(append(short[:0], '"'), t.run...), '-')
	b = append(append(append(b, n[:4]...), '-'), n[4:]...)
	return string(append(b, '"'))
}
