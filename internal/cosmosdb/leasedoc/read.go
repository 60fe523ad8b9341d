package leasedoc

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/notes"
)

// Reading is tolerant of form and strict in meaning. Names and times are accepted in each notation of the other
// processors. But a value that could be misunderstood makes the lease unusable: an operator notices a lease that no
// processor takes, whereas a lease that is misread silently loses changes.

// Unmarshal reads a document of the unit. If the document is invalid, Record.Err wraps [feed.ErrBadLease] and names
// the member, its value and the wanted form; the other fields contain everything that could be read.
func Unmarshal(prefix string, doc []byte) feed.Record {
	r := reader{prefix: prefix}
	r.l.Raw = slices.Clone(json.RawMessage(doc))
	var err error
	if r.doc, err = parseObject(doc); err != nil {
		r.l.Err = fmt.Errorf("%w: %w: %s", feed.ErrBadLease, err, clip(string(doc)))
	}
	r.readIdentity()
	r.readCommon()
	if r.l.Kind == feed.KindLease {
		r.readLease()
	}
	return r.l
}

// reader fills a record member by member and keeps the first error, because later errors often follow from the first.
type reader struct {
	prefix string
	doc    object
	l      feed.Record
}

// noteInvalid records the first invalid member.
func (r *reader) noteInvalid(field, value, want string) {
	if r.l.Err == nil {
		r.l.Err = fmt.Errorf("%w: %s is %s: want %s", feed.ErrBadLease, field, clip(value), want)
	}
}

// clip shortens a value for an error.
func clip(value string) string {
	const most = 120
	if len(value) > most {
		return value[:most] + "…"
	}
	return value
}

// readText returns a string member, or "" for missing or null.
func (r *reader) readText(name string) (s string) {
	v := r.doc.get(name)
	if v != nil && !isString(v) {
		r.noteInvalid(name, string(v), "a string")
	}
	return rawjson.Text(v)
}

// readNumber returns an integer member from least to most, or 0 for missing or null.
func (r *reader) readNumber(name string, least, most int64) (n int64) {
	v := r.doc.get(name)
	if v == nil {
		return 0
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < least || n > most {
		r.noteInvalid(name, string(v), fmt.Sprintf("an integer from %d to %d", least, most))
		return 0
	}
	return n
}

// readIdentity reads kind and token from the id. It refuses an id that ID would write differently, because an
// update would go to another document.
func (r *reader) readIdentity() {
	r.l.ID = r.readText(memberID)
	kind, token, ok := KindOf(r.prefix, r.l.ID)
	if !ok {
		want := fmt.Sprintf("%q with a lease token or one of .host.<instance>, .info, .lock after %q",
			r.prefix+leaseInfix, r.prefix)
		r.noteInvalid(memberID, strconv.Quote(r.l.ID), want)
	} else if id := ID(r.prefix, kind, token); id != r.l.ID {
		r.noteInvalid(memberID, strconv.Quote(r.l.ID), strconv.Quote(id))
	}
	r.l.Kind, r.l.Token = kind, token
}

// readCommon reads the members of every kind.
func (r *reader) readCommon() {
	r.l.ETag = r.readText(memberETag)
	if owner := r.readText(memberOwner); strings.TrimSpace(owner) != "" {
		r.l.Owner = owner
	}
	r.l.Timestamp = r.readTimestamp()
	if ts := r.readNumber(memberTs, 0, latestSecond); ts != 0 {
		r.l.Updated = time.Unix(ts, 0).UTC()
	}
	if ttl := r.readNumber(memberTTL, -1, maxTTL); ttl > 0 { // -1 means never
		r.l.TTL = time.Duration(ttl) * time.Second
	}
	r.readProperties()
}

// latestSecond is the last second of the year 9999. Later times cannot be written in the form of RFC 3339.
const latestSecond = 253402300799

// readTimestamp reads the old and new notations of .NET and of Java.
func (r *reader) readTimestamp() time.Time {
	text := r.readText(memberTimestamp)
	if text == "" {
		return time.Time{}
	}
	plain, _, _ := strings.Cut(text, "[") // Java's ZonedDateTime: …Z[UTC]
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, notes.TimeOf(plain)); err == nil && isWritable(t) {
			return t.UTC()
		}
	}
	r.noteInvalid(memberTimestamp, strconv.Quote(text), "a time such as 2026-03-04T23:55:16.5233511Z")
	return time.Time{}
}

// isWritable reports whether a time has a year of four digits in UTC.
func isWritable(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1 && year <= 9999
}

// readLease reads the members of a lease. If the token is missing, the rest is not read, because the range would be
// unknown.
func (r *reader) readLease() {
	if !r.readToken() {
		return
	}
	r.l.Version = int(r.readNumber(memberVersion, 0, 1))
	r.readRange()
	r.parseMode(memberMode, r.readText(memberMode))
	continuation := r.readText(memberContinuation)
	if state, java := javaState(continuation); java {
		r.readJavaState(state)
		r.refuseJava()
		return
	}
	r.l.Position.Token = continuation
	if r.isNewJava() {
		r.refuseJava()
	}
}

// readToken compares the member with the token in the id. The V2 library calls the member PartitionId.
func (r *reader) readToken() bool {
	token := r.readText(memberToken)
	if token == "" {
		token = r.readText(memberPartitionID)
	}
	if token == "" {
		r.noteInvalid(memberToken, string(orElse(r.doc.get(memberToken), json.RawMessage("missing"))),
			"a partition key range id or min-max")
		return false
	}
	r.l.Token = token
	if id := ID(r.prefix, feed.KindLease, token); id != r.l.ID {
		r.noteInvalid(memberID, strconv.Quote(r.l.ID), fmt.Sprintf("%q, as its %s says", id, memberToken))
	}
	return true
}

// parseMode parses the name of a mode, in any case. The name is .NET's or Java's.
func (r *reader) parseMode(field, text string) {
	switch strings.ToLower(text) {
	case "", strings.ToLower(modeLatest), "incremental":
		r.l.Mode = feed.LatestVersion
	case strings.ToLower(modeAll), "full_fidelity":
		r.l.Mode = feed.AllVersionsAndDeletes
	default:
		r.noteInvalid(field, strconv.Quote(text), fmt.Sprintf("%q or %q", modeLatest, modeAll))
	}
}

// readRange reads the range. If there is none, the range of the token counts. A version 0 lease may have neither,
// because its token is a partition key range id, and only the source knows the range of this id.
func (r *reader) readRange() {
	of, err := feed.ParseRange(r.l.Token)
	if err != nil && r.l.Version == 1 {
		r.noteInvalid(memberToken, strconv.Quote(r.l.Token), "min-max in hex with min below max in a version 1 lease")
	}
	stored := r.readStoredRange()
	switch {
	case stored == (feed.Range{}):
		r.l.Range = of
	case err == nil && stored != of:
		r.noteInvalid(memberFeedRange, stored.String(), fmt.Sprintf("the range of the token, %v", of))
	default:
		r.l.Range = stored
	}
}

// readStoredRange returns the EPK range of the member, or the empty range if the member has another form.
func (r *reader) readStoredRange() feed.Range {
	const want = `{"Range":{"min":"…","max":"…"}} in hex with min below max`
	text := r.doc.getFold(memberFeedRange)
	if text == nil {
		return feed.Range{}
	}
	var form struct {
		PKRangeID *string
		Range     *struct {
			Min, Max                       *string
			IsMinInclusive, IsMaxInclusive *bool
		}
	}
	if err := json.Unmarshal(text, &form); err != nil {
		r.noteInvalid(memberFeedRange, string(text), want)
		return feed.Range{}
	}
	e := form.Range
	if e == nil && form.PKRangeID != nil && r.l.Version == 0 {
		return feed.Range{}
	}
	if e == nil || e.Min == nil || e.Max == nil {
		r.noteInvalid(memberFeedRange, string(text), want)
		return feed.Range{}
	}
	if (e.IsMinInclusive != nil && !*e.IsMinInclusive) || (e.IsMaxInclusive != nil && *e.IsMaxInclusive) {
		r.noteInvalid(memberFeedRange, string(text), "a range that includes its minimum and not its maximum")
	}
	parsed, err := feed.ParseRange(*e.Min + "-" + *e.Max)
	if err != nil {
		r.noteInvalid(memberFeedRange, string(text), want)
	}
	return parsed
}
