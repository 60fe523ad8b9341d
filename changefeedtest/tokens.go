package changefeedtest

import (
	"github.com/millrace/changefeed/feed"
)

// tokenCases test [feed.Sequencer]. If a token means another LSN, a processor that sets a position within a page skips
// changes.
var tokenCases = []containerCase{
	{name: "the LSN of a token divides the changes", needs: []Ability{Sequencing}, test: tokensDivide},
	{
		name: "the LSN of a token divides the changes after a split", needs: []Ability{Sequencing, Splitting},
		test: tokensDivideAfterSplit,
	},
	{name: "a text that is no token has no LSN", needs: []Ability{Sequencing}, test: textsWithoutLSN},
}

// canSequence reports whether the source is a Sequencer and knows the LSNs of its tokens.
func (s *containerTest) canSequence() bool {
	q, ok := s.Source.(feed.Sequencer)
	return ok && q.TokenAfter(1) != ""
}

// tokensDivide reads after each LSN of a feed, including transactions.
func tokensDivide(s *containerTest) {
	s.put("k", "a", "b")
	s.put("l", "c")
	s.put("k", "d")
	s.wantDivided(s.wholeRange())
}

// tokensDivideAfterSplit is tokensDivide in the parts of a partition.
func tokensDivideAfterSplit(s *containerTest) {
	s.put("k", "a", "b")
	s.put("l", "c")
	children := s.split(s.onlyPartition())
	s.put("m", "d")
	s.put("k", "e")
	for _, child := range children {
		s.wantDivided(child.Range)
	}
}

// wantDivided reads after each LSN and expects the changes with a higher LSN. It also compares each page's token with
// the page's changes.
func (s *containerTest) wantDivided(r feed.Range) {
	s.Helper()
	q := s.Source.(feed.Sequencer)
	all := s.drainAll(r, beginning, feed.ReadOptions{})
	for _, last := range all {
		token := q.TokenAfter(last.LSN)
		if lsn, ok := q.TokenLSN(token); !ok || lsn != last.LSN {
			s.Errorf("TokenLSN(TokenAfter(%d)) = %d, %v", last.LSN, lsn, ok)
		}
		var want []string
		for _, c := range all {
			if c.LSN > last.LSN {
				want = append(want, c.ID)
			}
		}
		s.wantIDs("the changes after an LSN", s.drainAll(r, feed.At(token), feed.ReadOptions{}), want...)
	}
	for at := beginning; ; {
		page := s.read(r, at, feed.ReadOptions{MaxItems: 1})
		if len(page.Changes) == 0 {
			return
		}
		last := page.Changes[len(page.Changes)-1].LSN
		if lsn, ok := q.TokenLSN(page.Next.Token); !ok || lsn < last {
			s.Errorf("the token after a page up to LSN %d is after LSN %d, %v", last, lsn, ok)
		}
		at = page.Next
	}
}

// textsWithoutLSN asks for the LSNs of invalid tokens.
func textsWithoutLSN(s *containerTest) {
	for _, text := range []string{"", "opaque", `"-1"`, `"1x"`, `"`} {
		if lsn, ok := s.Source.(feed.Sequencer).TokenLSN(text); ok {
			s.Errorf("TokenLSN(%q) = %d, though it is no token", text, lsn)
		}
	}
	if token := s.Source.(feed.Sequencer).TokenAfter(-1); token != "" {
		s.Errorf("TokenAfter(-1) = %q, though -1 is no LSN", token)
	}
}
