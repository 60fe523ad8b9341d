package changefeedtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/millrace/changefeed/feed"
)

// largeDocuments parks barely acceptable documents, which hardly compress: if a letter is refused, its change is never
// parked.
func (s *letterTest) largeDocuments() {
	key := feed.Key("k")
	var want []feed.DeadLetter
	for i, size := range []int{1 << 20, 1_600_000, 2<<20 - 1<<10} {
		l := letter(key, int64(i+1), 0)
		var body bytes.Buffer
		for n := 0; body.Len() < size-100; n++ {
			fmt.Fprintf(&body, `{"n":%d,"text":"some text"},`, n)
		}
		l.Change.Body = fmt.Appendf(nil, `{"id":"a","list":[%s0]}`, body.Bytes())
		want = append(want, l)
	}
	noise := want[0]
	noise.ID, noise.Change.LSN, noise.Change.Op = "9.0", 9, feed.OpReplace
	text := make([]byte, 2<<20-1<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text)
	for i, b := range text {
		text[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[b%64]
	}
	noise.Change.Body = fmt.Appendf(nil, `{"id":"a","noise":"%s"}`, text)
	slices.Reverse(text)
	noise.Change.Previous = fmt.Appendf(nil, `{"id":"a","noise":"%s"}`, text)
	want = append(want, noise)
	s.put(want...)
	s.wantLetters(key, want...)
	s.remove(key, want[1].ID)
	s.put(noise)
	s.reopenBox()
	s.wantLetters("", want[0], want[2], noise)
	s.remove(key, noise.ID)
	s.wantLetters(key, want[0], want[2])
}

// longCauses parks with an error with all data of the handler. A store may cut the cause, but not the document.
func (s *letterTest) longCauses() {
	l := letter(feed.Key("k"), 1, 0)
	l.Cause, l.Stack = strings.Repeat("é\n", 1<<20), strings.Repeat("goroutine\xff", 1<<18)
	s.put(l)
	got := s.allLetters(l.Change.PartitionKey)
	if len(got) != 1 || !strings.HasPrefix(got[0].Cause, "é\né\n") || !strings.HasPrefix(got[0].Stack, "goroutine") {
		s.Fatalf("%d letters, or one without its cause and stack", len(got))
	}
	got[0].Cause, got[0].Stack = l.Cause, l.Stack
	s.wantSame("a letter with a long cause", got, []feed.DeadLetter{l})
}
