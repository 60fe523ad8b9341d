package leasedoc

import (
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/notes"
)

// readProperties reads the properties: others' into the map, ours into their fields. Another processor's property that
// is not a string does not fit into the map; Marshal keeps that property anyway. If a property of ours is a number,
// another processor may have rewritten the original string.
func (r *reader) readProperties() {
	text := r.doc.get(memberProperties)
	if text == nil {
		return
	}
	stored, err := parseObject(text)
	if err != nil {
		r.noteInvalid(memberProperties, string(text), "an object of strings")
		return
	}
	for _, m := range stored {
		value, isText := rawjson.Text(m.value), isString(m.value)
		if _, err := notes.ParseNumber(string(m.value)); err == nil && strings.HasPrefix(m.name, ours) {
			value, isText = string(m.value), true
		}
		switch isField := isOurs(m.name); {
		case isField && (!isText || !r.readOurProperty(m.name, value)):
			r.noteInvalid(memberProperties+"."+m.name, string(m.value), ourForms[m.name])
		case !isField && isText:
			r.setProperty(m.name, value)
		}
	}
}

func (r *reader) setProperty(name, value string) {
	if r.l.Properties == nil {
		r.l.Properties = map[string]string{}
	}
	r.l.Properties[name] = value
}

// ourForms are the valid forms of our properties, for error messages.
var ourForms = map[string]string{
	propEpoch:      `"<owner>/<epoch>"`,
	propAttempts:   `a count and the token that it counts for, such as "3 after \"1083\""`,
	propStart:      `"now", "beginning" or a time such as "at 2026-01-31T15:04:05Z"`,
	propState:      `a word such as "splitting"`,
	propFence:      `Unix milliseconds such as "#1767225600000"`,
	propExpiration: `a duration such as "1m0s"`,
}

// readOurProperty reads a property of ours, and reports whether its form is valid. An invalid form makes the whole
// lease unusable, because ignoring a fence or a state would give the lease two owners.
func (r *reader) readOurProperty(name, value string) (ok bool) {
	switch name {
	case propEpoch:
		return r.readEpoch(value)
	case propAttempts:
		// The attempts belong to the position with which they were written. A processor that does not know them may
		// have moved the position since.
		count, at, known := strings.Cut(value, attemptsAfter)
		n, err := strconv.ParseUint(count, 10, 31)
		if known && at == rawjson.Text(r.doc.get(memberContinuation)) {
			r.l.Attempts = int(n)
		}
		return err == nil
	case propStart:
		start, err := feed.ParseStart(notes.TimeOf(value))
		if ok = err == nil && isWritable(start.Time()); ok {
			r.l.Position.Start = start
		}
		return ok
	case propState:
		if r.l.State = feed.State(value); value == feed.StateLive.String() {
			r.l.State = feed.StateLive
		}
		return isWord(value)
	case propFence:
		ms, err := notes.ParseNumber(value)
		if ok = err == nil && ms >= 0 && ms <= latestSecond*1000; ok {
			r.l.Fence = time.UnixMilli(ms).UTC()
		}
		return ok
	default: // propExpiration
		d, err := time.ParseDuration(value)
		r.l.Expiration = max(d, 0)
		return err == nil && d >= 0
	}
}

// readEpoch reads the epoch of the owner. A processor that does not know epochs takes a lease by writing only Owner.
// The epoch of the former owner then remains, but contains the former owner's name, and is ignored.
func (r *reader) readEpoch(value string) bool {
	slash := strings.LastIndexByte(value, '/')
	if slash < 0 {
		return false
	}
	if value[:slash] == r.l.Owner {
		r.l.Epoch = value[slash+1:]
	}
	return true
}
