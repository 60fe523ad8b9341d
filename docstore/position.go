package docstore

import (
	"math"
	"strconv"

	"github.com/millrace/changefeed"
)

// A token is the decimal LSN up to which everything was read, in quotes as the service
// has it: "42". LSNs come from one counter a container, so a token holds for every
// range, before and after splits and merges.

// token is the position behind an LSN.
func token(lsn int64) string { return `"` + strconv.FormatInt(lsn, 10) + `"` }

// parseToken reads a token, with its quotes or without.
func parseToken(text string) (int64, error) {
	bare := text
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		bare = text[1 : n-1]
	}
	lsn, err := strconv.ParseUint(bare, 10, 63)
	if err != nil || bare[0] == '+' {
		return 0, refuse("continuation token is %.64q: want a quoted LSN such as %s", text, `"42"`)
	}
	return int64(lsn), nil
}

// begin is where a read begins: behind an LSN, and at a time.
type begin struct {
	lsn    int64
	since  int64 // Unix ms; changes before it are left out
	search bool  // lsn is yet to be found by since
}

const anyTime = math.MinInt64

// begin resolves a position. The head is that of the container.
func (l *layout) begin(from changefeed.Position, o changefeed.ReadOptions, head int64) (b begin, err error) {
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
	if err != nil || o.Mode == changefeed.LatestVersion {
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
