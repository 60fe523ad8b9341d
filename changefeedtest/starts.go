package changefeedtest

import (
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
)

// The start of a lease is decided once, when the lease is created. A mistake there skips changes, or repeats all of
// them, long before a person notices.

// startCases test where reading begins, and which positions are refused.
var startCases = []containerCase{
	{name: "from now gives only later changes, and a token even when there are none", test: fromNow},
	{name: "from the beginning gives everything, however late it is asked for", test: fromBeginning},
	{
		name: "from a time gives the changes at it and later, to the second", needs: []Ability{PassingTime},
		test: fromTime,
	},
	{name: "what is written after a time was taken comes from that time", test: fromTimeTaken},
	{name: "from a time still to come gives nothing yet", test: fromFuture},
	{name: "a start from a time stays beside the token", needs: []Ability{PassingTime}, test: startStays},
	{name: "a token wins over the start beside it", test: tokenWins},
	{name: "what is no token is a bad request", test: badTokens},
	{name: "what is no partition key is a bad request that names it", needs: []Ability{KeyReads}, test: badKeyRead},
}

// fromNow starts from now. The page must have a token even if nothing has changed: without a token, the changes between
// this read and the next would be skipped.
func fromNow(s *containerTest) {
	s.put("k", "before")
	changes, next := s.readAll(s.wholeRange(), feed.Position{}, feed.ReadOptions{})
	s.wantIDs("from now", changes)
	s.put("k", "after")
	s.put("k", "later")
	changes, next = s.readAll(s.wholeRange(), next, feed.ReadOptions{})
	s.wantIDs("after now", changes, "after", "later")
	changes, _ = s.readAll(s.wholeRange(), next, feed.ReadOptions{})
	s.wantIDs("at the end", changes)
}

// fromBeginning reads twice from the beginning, because a second unit begins late.
func fromBeginning(s *containerTest) {
	want := s.putSpread("i", 5)
	_, next := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	changes, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("a second time from the beginning", changes, want...)
	changes, _ = s.readAll(s.wholeRange(), next, feed.ReadOptions{})
	s.wantIDs("after the end", changes)
}

// fromTime writes a, b, c with more than a second between them, and starts around b. A start includes its own second,
// because a program first takes the time and then writes.
func fromTime(s *containerTest) {
	s.put("k", "a")
	s.passTime(2 * time.Second)
	s.put("k", "b")
	s.passTime(2 * time.Second)
	s.put("k", "c")
	all, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	s.wantIDs("from the beginning", all, "a", "b", "c")
	if s.Failed() {
		return
	}
	b := all[1].Time.Truncate(time.Second)
	for _, c := range []struct {
		at   time.Time
		want []string
	}{
		{b.Add(-time.Hour), []string{"a", "b", "c"}},
		{b.Add(-time.Second), []string{"b", "c"}},
		{b, []string{"b", "c"}},
		{all[1].Time, []string{"b", "c"}},
		{b.Add(time.Second), []string{"c"}},
		{all[2].Time.Truncate(time.Second).Add(time.Second), nil},
	} {
		from := feed.Position{Start: feed.FromTime(c.at)}
		for _, most := range []int{0, 1} {
			changes, _ := s.readAll(s.wholeRange(), from, feed.ReadOptions{MaxItems: most})
			s.wantIDs("from "+from.String(), changes, c.want...)
		}
	}
}

// fromTimeTaken writes twice within a second: a program that takes the time and then writes does both in the same
// second, and must not lose the write.
func fromTimeTaken(s *containerTest) {
	s.put("k", "a")
	first, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	if len(first) != 1 {
		s.Fatalf("%d changes, want one", len(first))
	}
	s.put("k", "b")
	from := feed.Position{Start: feed.FromTime(first[0].Time)}
	all, next := s.readAll(s.wholeRange(), from, feed.ReadOptions{})
	s.wantIDs("from the time of the first", all, "a", "b")
	s.put("k", "c")
	all, _ = s.readAll(s.wholeRange(), next, feed.ReadOptions{})
	s.wantIDs("after that, with the start beside the token", all, "c")
}

// fromFuture starts tomorrow: the read returns no changes yet and no error.
func fromFuture(s *containerTest) {
	s.put("k", "a")
	all, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	if len(all) != 1 {
		s.Fatalf("%d changes, want one", len(all))
	}
	from := feed.Position{Start: feed.FromTime(all[0].Time.Add(24 * time.Hour))}
	changes, _ := s.readAll(s.wholeRange(), from, feed.ReadOptions{})
	s.wantIDs("from tomorrow", changes)
}

// startStays expects the start to stay beside the token. A reader goes on filtering by time, because a merge may bring
// older changes after the token.
func startStays(s *containerTest) {
	s.put("k", "a")
	s.passTime(2 * time.Second)
	all, _ := s.readAll(s.wholeRange(), beginning, feed.ReadOptions{})
	if len(all) != 1 {
		s.Fatalf("%d changes, want one", len(all))
	}
	from := feed.Position{Start: feed.FromTime(all[0].Time)}
	s.put("k", "b")
	for range 3 {
		page := s.read(s.wholeRange(), from, feed.ReadOptions{})
		if page.Next.Start != from.Start {
			s.Errorf("start beside the token is %v, want %v", page.Next.Start, from.Start)
		}
		from = page.Next
	}
}

// tokenWins reads with token and start: the token is progress, and a read from the start would repeat all of it.
func tokenWins(s *containerTest) {
	s.put("k", "a")
	end := s.tokenAtEnd(s.wholeRange(), feed.LatestVersion)
	s.put("k", "b")
	both := feed.Position{Token: end.Token, Start: feed.FromBeginning()}
	changes, _ := s.readAll(s.wholeRange(), both, feed.ReadOptions{})
	s.wantIDs("from a token with a start beside it", changes, "b")
}

// badTokens reads with malformed tokens. If a store took such a token for the beginning or the end, it would hide a
// mistake of the operator by repeating or losing changes.
func badTokens(s *containerTest) {
	s.put("k", "a")
	for _, token := range []string{"garbage", `"garbage"`, "{}", `"1`, "-", "\x00\xff", strings.Repeat("9", 200)} {
		s.wantRefused(feed.ErrBadRequest, s.wholeRange(), feed.At(token), feed.ReadOptions{})
	}
}

// badKeyRead reads with malformed keys; the error must name the key, because keys come from users.
func badKeyRead(s *containerTest) {
	o := feed.ReadOptions{Key: feed.Key(make(chan int))}
	_, err := s.Source.Read(s.Context(), s.wholeRange(), beginning, o)
	if err == nil || !strings.Contains(err.Error(), "chan int") {
		s.Errorf("Read of key %s: %v, want an error that names it", o.Key, err)
	}
	for _, key := range []feed.PartitionKey{"x", "[", `{"a":1}`, `["a","b","c","d"]`, "[[]]"} {
		s.wantRefused(feed.ErrBadRequest, s.wholeRange(), beginning, feed.ReadOptions{Key: key})
	}
}
