package docstore

import (
	"math"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// A token is the decimal LSN up to which everything was read. As in the service, a token has quotes: "42". All LSNs
// of a container come from the same counter, so a token is valid for every range, before and after splits and merges.

// parseToken reads a token with or without quotes.
func parseToken(text string) (int64, error) {
	lsn, ok := service.LSN(text)
	if !ok {
		return 0, refuse("continuation token is %.64q: want a quoted LSN such as %s", text, `"42"`)
	}
	return lsn, nil
}

// begin is the place where a read begins: after an LSN, and at a time.
type begin struct {
	lsn    int64
	since  int64 // Unix ms; earlier changes are left out
	search bool  // the read must still find the LSN that belongs to since
}

const anyTime = math.MinInt64

// resolvePosition resolves a position to an LSN. If the position has a token and a start time, the start time is
// kept, because the start time may be later than the changes read so far.
func (l *layout) resolvePosition(from feed.Position, options feed.ReadOptions, head int64) (b begin, err error) {
	b.since = anyTime
	if t := from.Start.Time(); !t.IsZero() {
		b.since, b.search = t.UnixMilli(), from.Token == ""
	}
	switch {
	case from.Token != "":
		b.lsn, err = parseToken(from.Token)
	case from.Start.IsNow():
		b.lsn = head
	}
	if err != nil || options.Mode == feed.LatestVersion {
		return b, err
	}
	switch {
	case l.retention() == 0:
		return b,
			refuse("container %q keeps no versions: set ContainerSpec.Retention, or DB.SetRetention, to read all "+
				"versions and deletes", l.spec.ID)
	case from.Token == "" && !from.Start.IsNow():
		return b, refuse("start of all versions and deletes is %s: want now, or a continuation token", from.Start)
	case b.lsn < l.floor:
		return b, tooOld(l, b.lsn)
	}
	return b, nil
}
