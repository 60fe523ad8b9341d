package docstore

import (
	"math"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// A token is the decimal LSN up to which everything was read, in quotes as the service
// writes them: "42". LSNs come from one counter for each container, so a token is valid
// for every range, before and after splits and merges.

// parseToken reads a token, with its quotes or without.
func parseToken(text string) (int64, error) {
	lsn, ok := service.LSN(text)
	if !ok {
		return 0, refuse("continuation token is %.64q: want a quoted LSN such as %s", text, `"42"`)
	}
	return lsn, nil
}

// begin is where a read begins: after an LSN, and at a time.
type begin struct {
	lsn    int64
	since  int64 // Unix ms; changes before it are left out
	search bool  // the LSN that belongs to since has to be found
}

const anyTime = math.MinInt64

// resolvePosition resolves a position to an LSN. A start time is kept beside a token, because the
// time may lie ahead of the changes read so far.
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
		return b, refuse("container %q keeps no versions: set ContainerSpec.Retention, or DB.SetRetention, to read all versions and deletes", l.spec.ID)
	case from.Token == "" && !from.Start.IsNow():
		return b, refuse("start of all versions and deletes is %s: want now, or a continuation token", from.Start)
	case b.lsn < l.floor:
		return b, tooOld(l, b.lsn)
	}
	return b, nil
}
