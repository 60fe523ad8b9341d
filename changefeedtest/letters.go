package changefeedtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Dead letters are the only copy of changes that the feed has passed. So the suite tests many ways to lose a letter:
// documents that are no JSON or nearly too large, similar keys, a restart between any two steps, and another order than
// the order of the changes.

// TestDeadLetters proves a [feed.LetterBox] against every sentence of its documentation. For each case, place makes a
// place without letters; the returned function opens the box there. The function is called again after the box was
// closed, if the box is an [io.Closer], as after a restart.
func TestDeadLetters(t *testing.T, place func(t *testing.T) (open func() feed.LetterBox)) {
	for _, c := range []struct {
		name string
		test func(s *letterTest)
	}{
		{"a letter comes back as it was put", (*letterTest).wholeLetters},
		{"letters outlive the box", (*letterTest).lettersAreDurable},
		{"a letter that is put again replaces the first", (*letterTest).putIsIdempotent},
		{"letters of a key come in the order of their changes", (*letterTest).lettersAreInOrder},
		{"each kind of partition key has its own letters", (*letterTest).letterKeys},
		{"documents keep every byte", (*letterTest).oddDocuments},
		{"a document of nearly 2 MB can be parked", (*letterTest).largeDocuments},
		{"a long cause prevents no letter", (*letterTest).longCauses},
		{"a letter that is removed is gone, and can be put again", (*letterTest).lettersAreRemoved},
		{"letters can be removed while they are read", (*letterTest).removalWithin},
		{"concurrent puts keep every letter", (*letterTest).putsAreConcurrent},
		{"an ended context is an error", (*letterTest).endedContext},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &letterTest{T: t, open: place(t)}
			s.LetterBox = s.open()
			c.test(s)
		})
	}
}

// letterTest is a box under test with methods for tests.
type letterTest struct {
	*testing.T
	feed.LetterBox
	open func() feed.LetterBox
}

// parkedAt is the time at which letters of tests were parked.
var parkedAt = time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC)

// letter returns a letter of a change with this LSN and index.
func letter(key feed.PartitionKey, lsn int64, index int) feed.DeadLetter {
	id := fmt.Sprintf("item-%d", lsn)
	return feed.DeadLetter{
		ID: fmt.Sprintf("%d.%d", lsn, index), Index: index, Disposition: feed.DispositionFailed,
		Cause: "it did not work", Attempts: 3, Instance: "one", Lease: "-1F", Range: feed.Range{Max: "1F"},
		Parked: parkedAt,
		Change: feed.Change{
			ID: id, PartitionKey: key, LSN: lsn, Time: parkedAt.Add(-time.Hour), ETag: `"e"`,
			Body: fmt.Appendf(nil, `{"id":%q,"n":%d,"_etag":"\"e\""}`, id, index),
		},
	}
}

// put stores letters. The rest of a test relies on them, so an error ends the test.
func (s *letterTest) put(letters ...feed.DeadLetter) {
	s.Helper()
	for _, l := range letters {
		if err := s.Put(s.Context(), l); err != nil {
			s.Fatalf("Put of %s of %s: %v", l.ID, l.Change.PartitionKey, err)
		}
	}
}

func (s *letterTest) remove(key feed.PartitionKey, id string) {
	s.Helper()
	if err := s.Remove(s.Context(), key, id); err != nil {
		s.Fatalf("Remove(%s, %s): %v", key, id, err)
	}
}

// allLetters returns the letters of a key, or of all keys.
func (s *letterTest) allLetters(key feed.PartitionKey) (all []feed.DeadLetter) {
	s.Helper()
	for l, err := range s.Letters(s.Context(), key) {
		if err != nil {
			s.Fatalf("Letters(%s): %v", key, err)
		}
		all = append(all, l)
	}
	return all
}

// wantLetters compares the letters of a key, in their order.
func (s *letterTest) wantLetters(key feed.PartitionKey, want ...feed.DeadLetter) {
	s.Helper()
	s.wantSame(fmt.Sprintf("Letters(%s)", key), s.allLetters(key), want)
}

// wantSame compares letters in the form of comparable: a time may come back in another zone, and is the same.
func (s *letterTest) wantSame(what string, got, want []feed.DeadLetter) {
	s.Helper()
	if len(got) != len(want) {
		s.Errorf("%s: %v, want %v", what, letterIDs(got), letterIDs(want))
		return
	}
	for i := range got {
		if g, w := comparable(got[i]), comparable(want[i]); !reflect.DeepEqual(g, w) {
			s.Errorf("%s: letter %d is %.600s, want %.600s", what, i, fmt.Sprintf("%+v", g), fmt.Sprintf("%+v", w))
		}
	}
}

// comparable returns a letter in a form in which equal letters are equal: times in UTC, and documents as text.
func comparable(l feed.DeadLetter) any {
	body, previous := "none", "none"
	if l.Change.Body != nil {
		body = string(l.Change.Body)
	}
	if l.Change.Previous != nil {
		previous = string(l.Change.Previous)
	}
	l.Change.Body, l.Change.Previous = nil, nil
	for _, t := range []*time.Time{&l.Change.Time, &l.Failed, &l.Parked} {
		*t = t.UTC()
	}
	return struct {
		Document, Previous string
		Letter             feed.DeadLetter
	}{body, previous, l}
}

func letterIDs(letters []feed.DeadLetter) (ids []string) {
	for _, l := range letters {
		ids = append(ids, string(l.Change.PartitionKey)+" "+l.ID)
	}
	return ids
}

// reopenBox closes the box and opens it again.
func (s *letterTest) reopenBox() {
	s.Helper()
	if c, ok := s.LetterBox.(io.Closer); ok {
		if err := c.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
	}
	s.LetterBox = s.open()
}

// wholeLetters stores a letter with every field set, and a letter with only the fields of every letter.
func (s *letterTest) wholeLetters() {
	key := feed.Key("k")
	full := letter(key, 1, 2)
	full.Disposition, full.Stack, full.Failed = feed.DispositionPoison, "goroutine 1\n\tmain.go",
		parkedAt.Add(-time.Minute)
	full.Change.Op, full.Change.Previous, full.Change.PreviousLSN = feed.OpReplace, json.RawMessage(`{"id":"before"}`),
		7
	end := letter(key, 2, 0)
	end.Change.Op, end.Change.Expired, end.Change.Body, end.Change.ETag = feed.OpDelete, true, nil, ""
	held := letter(key, 3, 0)
	held.Disposition, held.Cause, held.Attempts, held.Change.Op = feed.DispositionHeld, "", 0, feed.OpCreate
	s.put(full, end, held)
	s.wantLetters(key, full, end, held)
	s.wantLetters("", full, end, held)
}

// lettersAreDurable opens the box again: if a letter is lost, its change is lost.
func (s *letterTest) lettersAreDurable() {
	key := feed.Key("k")
	first, second, third := letter(key, 1, 0), letter(key, 2, 0), letter(key, 3, 0)
	s.put(first, second)
	s.remove(key, first.ID)
	s.reopenBox()
	s.wantLetters("", second)
	s.put(third)
	s.reopenBox()
	s.wantLetters(key, second, third)
}

// putIsIdempotent puts a letter again, as after a crash or a lost answer.
func (s *letterTest) putIsIdempotent() {
	l := letter(feed.Key("k"), 1, 0)
	other := letter(feed.Key("other"), 1, 0)
	s.put(l, other, l)
	l.Cause, l.Attempts = "it did not work again", 4
	s.put(l)
	s.wantLetters(l.Change.PartitionKey, l)
	s.wantLetters(other.Change.PartitionKey, other)
	s.reopenBox()
	s.put(l)
	s.wantLetters(l.Change.PartitionKey, l)
}

// lettersAreInOrder stores letters in another order than that of their changes: if a redrive used the order of the
// letters, it would undo newer writes of the key.
func (s *letterTest) lettersAreInOrder() {
	var want []feed.DeadLetter
	key := feed.Key("k")
	for lsn := range int64(12) {
		for index := range 3 {
			want = append(want, letter(key, lsn+1, index))
		}
	}
	for i := range want {
		l := want[i*7%len(want)]
		s.put(l)
		l.Change.PartitionKey = feed.Key("other")
		s.put(l)
	}
	s.put(want[3])
	s.wantLetters(key, want...)
	all := slices.DeleteFunc(s.allLetters(""), func(l feed.DeadLetter) bool { return l.Change.PartitionKey != key })
	s.wantSame("letters of one key among all", all, want)
	s.wantLetters(feed.Key("nobody"))
}

// letterKeys stores letters of keys that differ little.
func (s *letterTest) letterKeys() {
	// Keys which look like other types, which have the same text when their parts are joined, which contain characters
	// forbidden in ids, and which have the largest length. If a store makes names from keys, two of these must not have
	// the same name.
	keys := []feed.PartitionKey{
		feed.Key("5"), feed.Key("null"), feed.Key(`["k"]`), feed.Key("a", "b"), feed.Key("a,b"), feed.Key("a", nil),
		feed.Key("a", feed.Undefined), feed.Key("a/b#c?d%e"), feed.Key("a\nb\x7f "), feed.Key("😀"),
		feed.Key(strings.Repeat("x", 2040)), feed.Key(strings.Repeat("x", 2040), "y"),
		feed.Key(strings.Repeat("é", 1000), "z"),
		feed.Key(strings.Repeat("x", 2048)), feed.Key(strings.Repeat("x", 2047) + "y"),
	}
	for _, k := range kinds {
		keys = append(keys, k.key)
	}
	for _, key := range keys {
		s.put(letter(key, 1, 0))
	}
	for _, key := range keys {
		s.wantLetters(key, letter(key, 1, 0))
	}
	if all := s.allLetters(""); len(all) != len(keys) {
		s.Errorf("%d letters of %d keys: %v", len(all), len(keys), letterIDs(all))
	}
	for _, key := range keys {
		s.remove(key, "1.0")
		s.wantLetters(key)
	}
}

// oddDocuments parks documents which no handler can decode, a usual reason for parking.
func (s *letterTest) oddDocuments() {
	key := feed.Key("k")
	var want []feed.DeadLetter
	// Numbers and escapes in unusual notation, repeated names, bytes that are no text, and members with the names of a
	// letter's members.
	for i, text := range []string{
		`{"id":"a","x":1.0,"y":1e400,"z":-0,"big":12345678901234567890,"x":2}`, `{"id":"a" , "spaces":[ 1,2 ]}`,
		"{\n\t\"id\":\"a\"\r\n}", " {} ", " {}", "{} ",
		`{"id":"\u0061\/\ud800","<&>":"\u2028` + "\u2028" + `"}`, `null`, `7`, `"text"`, `{"id":"a"`, `not JSON`,
		"\xff\xfe\x00", ``,
		`{"deep":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
		`{"document":1,"letter":{"id":2},"key":[],"_etag":"x","crc":"00000000"}`,
	} {
		l := letter(key, int64(i+1), 0)
		l.Change.Body, l.Change.Previous = json.RawMessage(text), json.RawMessage(text)
		want = append(want, l)
	}
	s.put(want...)
	s.wantLetters(key, want...)
	s.reopenBox()
	s.wantLetters("", want...)
}

// lettersAreRemoved removes existing letters, missing letters, and letters with namesakes.
func (s *letterTest) lettersAreRemoved() {
	key, other := feed.Key("k"), feed.Key("other")
	s.remove(key, "1.0")
	s.put(letter(key, 1, 0), letter(key, 10, 0), letter(other, 1, 0))
	s.remove(key, "1.0")
	s.remove(key, "1.0")
	s.remove(feed.Key("nobody"), "10.0")
	s.wantLetters(key, letter(key, 10, 0))
	s.wantLetters(other, letter(other, 1, 0))
	s.put(letter(key, 1, 0))
	s.wantLetters(key, letter(key, 1, 0), letter(key, 10, 0))
}

// removalWithin removes each letter when it is read, as a redrive does, and stops early.
func (s *letterTest) removalWithin() {
	key := feed.Key("k")
	for lsn := range int64(10) {
		s.put(letter(key, lsn+1, 0))
	}
	seen := 0
	for l, err := range s.Letters(s.Context(), key) {
		if err != nil {
			s.Fatalf("Letters: %v", err)
		}
		s.remove(key, l.ID)
		if seen++; seen == 6 {
			break
		}
	}
	s.wantLetters(key, letter(key, 7, 0), letter(key, 8, 0), letter(key, 9, 0), letter(key, 10, 0))
}

// putsAreConcurrent stores letters from many workers, as many leases do.
func (s *letterTest) putsAreConcurrent() {
	const workers, each = 8, 12
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				for _, key := range []feed.PartitionKey{feed.Key(w), feed.Key("shared")} {
					if err := s.Put(s.Context(), letter(key, int64(i+1), w)); err != nil {
						s.Errorf("Put: %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	s.reopenBox()
	for w := range workers {
		var want []feed.DeadLetter
		for i := range each {
			want = append(want, letter(feed.Key(w), int64(i+1), w))
		}
		s.wantLetters(feed.Key(w), want...)
	}
	if n := len(s.allLetters(feed.Key("shared"))); n != workers*each {
		s.Errorf("%d letters of the shared key, want %d", n, workers*each)
	}
}

// endedContext expects errors: a caller that has gone must not take a letter for safe, or take the list of letters for
// complete.
func (s *letterTest) endedContext() {
	l := letter(feed.Key("k"), 1, 0)
	s.put(l)
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	if err := s.Put(ended, letter(l.Change.PartitionKey, 2, 0)); err == nil {
		s.Error("Put with an ended context: no error")
	}
	if err := s.Remove(ended, l.Change.PartitionKey, l.ID); err == nil {
		s.Error("Remove with an ended context: no error")
	}
	failed := false
	for _, err := range s.Letters(ended, "") {
		failed = failed || err != nil
	}
	if !failed {
		s.Error("Letters with an ended context: no error")
	}
	s.remove(l.Change.PartitionKey, "2.0") // the letter may have been stored nevertheless
	s.wantLetters("", l)
}
