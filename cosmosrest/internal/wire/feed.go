package wire

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The headers of the change feed: its mode, its start, and how long a poll may wait.

// FeedMode reads which of the two change feeds the client wants, and whether its items have metadata.
func (r *Request) FeedMode() (mode feed.Mode, wrapped bool, err error) {
	switch aim := r.Header(HeaderAIM); {
	case strings.EqualFold(aim, LatestFeed):
	case strings.EqualFold(aim, VersionsFeed):
		mode = feed.AllVersionsAndDeletes
	default:
		return mode, false, BadRequest("A-IM is %.64q: want %s or %s", aim, LatestFeed, VersionsFeed)
	}
	switch version := r.Header(HeaderWireFormat); version {
	case "":
	case WireFormat:
		wrapped = true
	default:
		return mode, false, BadRequest("x-ms-cosmos-changefeed-wire-format-version is %.64q: want %s", version,
			WireFormat)
	}
	return mode, wrapped, nil
}

// FeedStart reads where a feed begins: at the beginning, unless a header says otherwise. As in the service, a start
// time has no effect beside a continuation.
func (r *Request) FeedStart() (p feed.Position, err error) {
	p.Start = feed.FromBeginning()
	if text := r.Header(HeaderIfModified); text != "" {
		at, err := parseTime(text)
		if err != nil {
			return p, err
		}
		if !at.IsZero() { // .NET's least time means the beginning
			p.Start = feed.FromTime(at.Add(time.Second)) // the header excludes changes of its second
		}
	}
	text := r.Header(HeaderIfNoneMatch)
	_, isToken := service.LSN(text)
	switch {
	case text == "":
	case strings.Trim(text, `"`) == "*":
		p.Start = feed.FromNow()
	case !isToken:
		return p, BadRequest("If-None-Match is %.64q: want an ETag that a feed has given, such as %q, or *", text,
			`"42"`)
	default:
		p.Token, p.Start = text, feed.FromBeginning()
	}
	return p, nil
}

// parseTime parses an HTTP date. Some clients write UTC instead of GMT.
func parseTime(text string) (time.Time, error) {
	if plain, ok := strings.CutSuffix(text, " UTC"); ok {
		text = plain + " GMT"
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return at, BadRequest("If-Modified-Since is %.64q: want a time such as %q", text,
			"Tue, 02 Jan 2024 03:04:05 GMT")
	}
	return at, nil
}

// Polling returns how long the client allows the server to wait before sending an empty answer. The result is at most
// [MaxPolling], even if the client allows more.
func (r *Request) Polling() (time.Duration, error) {
	text := r.Header(HeaderPolling)
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 32)
	if err != nil || ms < 0 {
		return 0, BadRequest("x-ms-cosmos-max-polling-interval is %.64q: want milliseconds, 0 or more", text)
	}
	return min(time.Duration(ms)*time.Millisecond, MaxPolling), nil
}
