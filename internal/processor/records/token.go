package records

import "github.com/millrace/changefeed/feed"

// TokenLSN returns the LSN of a source's token, if the source is a [feed.Sequencer].
func TokenLSN(source feed.Source, token string) (lsn int64, ok bool) {
	s, ok := source.(feed.Sequencer)
	if !ok || token == "" {
		return 0, false
	}
	return s.TokenLSN(token)
}

// PositionAfter returns a position with the token after an LSN, if the source is a [feed.Sequencer]; the start is that
// of the given position.
func PositionAfter(source feed.Source, lsn int64, of feed.Position) (feed.Position, bool) {
	s, ok := source.(feed.Sequencer)
	if !ok {
		return of, false
	}
	token := s.TokenAfter(lsn)
	if token == "" {
		return of, false
	}
	return feed.Position{Token: token, Start: of.Start}, true
}
