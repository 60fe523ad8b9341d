package leasedoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
	"github.com/millrace/changefeed/internal/notes"
)

// Documents are written exactly as .NET writes them, including the order of members. So the .NET processor can take
// over a unit of ours, and a person can compare documents of both.

// Marshal writes a record as a document. pkPath is the partition key path of the lease container, /id or
// /partitionKey. Members of Record.Raw that the record does not know are kept, except those that the server sets.
// Record.Properties, if not nil, replaces the properties of Raw.
func Marshal(prefix, pkPath string, record feed.Record) ([]byte, error) {
	doc, err := marshal(prefix, pkPath, record)
	if err != nil {
		return nil, fmt.Errorf("write lease document %s: %w", ID(prefix, record.Kind, record.Token), err)
	}
	return doc, nil
}

// marshal puts our members first, and then the unchanged members of others.
func marshal(prefix, pkPath string, record feed.Record) ([]byte, error) {
	if err := check(record); err != nil {
		return nil, err
	}
	w := writer{l: record, out: make(object, 0, usualMembers)}
	if len(record.Raw) > 0 {
		raw, err := parseObject(record.Raw)
		if err != nil {
			return nil, fmt.Errorf("read stored document: %w", err)
		}
		w.raw = raw
	}
	id := ID(prefix, record.Kind, record.Token)
	w.addMember(memberID, quote(id))
	switch pkPath {
	case pathID:
	case pathPartitionKey:
		w.addMember(memberPartitionKey, orElse(w.raw.get(memberPartitionKey), quote(id)))
	default:
		return nil, fmt.Errorf("partition key path is %q: want %s or %s", pkPath, pathID, pathPartitionKey)
	}
	if record.Kind == feed.KindLease {
		w.addLease()
	} else {
		w.addPresence()
	}
	w.addTTL()
	w.addUnknown()
	return w.out.toJSON(), nil
}

// check refuses a record that could not be read back. If stored, such a record would stop every instance of the unit,
// not only the faulty instance.
func check(record feed.Record) error {
	if record.Err != nil {
		return record.Err
	}
	if !isWord(string(record.Kind)) {
		return fmt.Errorf("kind is %q: want a word of small letters, such as lease", record.Kind)
	}
	if strings.Contains(record.Epoch, "/") {
		return fmt.Errorf("epoch is %q: want no slash", record.Epoch)
	}
	if record.TTL > maxTTL*time.Second || record.TTL < 0 {
		return fmt.Errorf("time to live is %v: want 0 to %v", record.TTL, maxTTL*time.Second)
	}
	if !isWord(record.State.String()) {
		return fmt.Errorf("state is %q: want a word of small letters, such as splitting", record.State)
	}
	if record.Attempts < 0 || record.Expiration < 0 {
		return fmt.Errorf("attempts %d or expiration %v is negative", record.Attempts, record.Expiration)
	}
	switch record.Kind {
	case feed.KindHost:
		return needToken(record)
	case feed.KindLease:
		return errors.Join(needToken(record), checkLease(record))
	}
	return nil
}

// needToken refuses a record without a token, because the id contains the token.
func needToken(record feed.Record) error {
	if record.Token == "" {
		return fmt.Errorf("token of a %v is empty", record.Kind)
	}
	return nil
}

// checkLease refuses a lease whose token and range differ, because some processors read the token and others the
// range.
func checkLease(record feed.Record) error {
	if record.Mode > feed.AllVersionsAndDeletes {
		return fmt.Errorf("mode is %d: want 0 or 1", record.Mode)
	}
	if record.Version == 0 {
		return nil
	}
	if record.Version != 1 {
		return fmt.Errorf("version is %d: want 0 or 1", record.Version)
	}
	of, err := feed.ParseRange(record.Token)
	if err != nil {
		return fmt.Errorf("token of a version 1 lease: %w", err)
	}
	if record.Range != (feed.Range{}) && record.Range != of {
		return fmt.Errorf("range is %v: want that of token %s", record.Range, record.Token)
	}
	return nil
}

// writer builds a document from a record and from the stored document to replace.
type writer struct {
	l   feed.Record
	raw object
	out object
}

func (w *writer) addMember(name string, value json.RawMessage) {
	w.out = append(w.out, member{name, value})
}

// addLease adds the members of a lease in .NET's order. .NET accepts any order; the order is kept so that a person can
// compare documents of both processors.
func (w *writer) addLease() {
	record := w.l
	w.addMember(memberVersion, integer(record.Version))
	w.addMember(memberETag, quoteOrNull(record.ETag))
	w.addMember(memberToken, quote(record.Token))
	if record.Version == 0 && w.raw.get(memberPartitionID) != nil {
		w.addMember(memberPartitionID, quote(record.Token))
	}
	if r := w.feedRange(); r != nil {
		w.addMember(memberFeedRange, r)
	}
	w.addMember(memberOwner, quoteOrNull(record.Owner))
	w.addMember(memberContinuation, quoteOrNull(record.Position.Token))
	w.addMember(memberProperties, w.mergeProperties().toJSON())
	w.addMember(memberTimestamp, timestamp(record.Timestamp))
	w.addMember(memberTs, serverTime(record.Updated))
	// .NET writes the mode when creating a lease; its older leases have no mode.
	if w.raw == nil || w.raw.get(memberMode) != nil || record.Mode != feed.LatestVersion {
		w.addMember(memberMode, quote(modeText(record.Mode)))
	}
}

// addPresence adds the members of a record other than a lease. Unset members are left out, so the markers are byte for
// byte those of .NET.
func (w *writer) addPresence() {
	if w.l.Owner != "" {
		w.addMember(memberOwner, quote(w.l.Owner))
	}
	if p := w.mergeProperties(); len(p) > 0 {
		w.addMember(memberProperties, p.toJSON())
	}
	if !w.l.Timestamp.IsZero() {
		w.addMember(memberTimestamp, timestamp(w.l.Timestamp))
	}
}

// addTTL adds the time to live. A stored -1 ("never") is kept, because -1 may be an exception to the container's
// default.
func (w *writer) addTTL() {
	switch {
	case w.l.TTL > 0:
		w.addMember(memberTTL, integer(int((w.l.TTL+time.Second-1)/time.Second)))
	case string(w.raw.get(memberTTL)) == "-1":
		w.addMember(memberTTL, integer(-1))
	}
}

// addUnknown adds the members of the stored document that the record does not know.
func (w *writer) addUnknown() {
	for _, m := range w.raw {
		if !w.knowsMember(m.name) && !w.out.has(m.name) {
			w.out = append(w.out, m)
		}
	}
}

// knowsMember reports whether the record, or the server, sets a member. Java writes feedRange, and documents read from
// the feed have an _lsn.
func (w *writer) knowsMember(name string) bool {
	isLease := w.l.Kind == feed.KindLease
	switch name {
	case memberID, memberETag, memberOwner, memberProperties, memberTimestamp, memberTs, memberTTL:
		return true
	case memberVersion, memberToken, memberPartitionID, memberContinuation, memberMode:
		return isLease
	}
	return service.IsSystem(name) || isLease && strings.EqualFold(name, memberFeedRange)
}

// feedRange returns the range of the lease, or the stored range if the record has none.
func (w *writer) feedRange() json.RawMessage {
	r := w.l.Range
	if r == (feed.Range{}) && w.l.Version == 1 {
		r, _ = feed.ParseRange(w.l.Token) // cannot fail: check has parsed the token
	}
	if r == (feed.Range{}) {
		return w.raw.getFold(memberFeedRange)
	}
	edges := object{{"min", quote(r.Min)}, {"max", quote(r.Max)}}
	return object{{"Range", edges.toJSON()}}.toJSON()
}

// mergeProperties returns others' properties in the stored order, new ones by name, then ours.
func (w *writer) mergeProperties() object {
	var p object
	stored, _ := parseObject(w.raw.get(memberProperties)) // a value that is not an object has no properties
	for _, m := range stored {
		_, given := w.l.Properties[m.name]
		if !isOurs(m.name) && (given || w.l.Properties == nil || !isString(m.value)) {
			p = append(p, m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.l.Properties)) {
		if !isOurs(name) {
			p.put(name, quote(w.l.Properties[name]))
		}
	}
	return append(p, w.ownProperties()...)
}

func isString(value json.RawMessage) bool { return value[0] == '"' }

// ownProperties returns our properties in a fixed order. An epoch contains its owner's name, so the epoch is ignored
// after another processor has changed only the owner.
func (w *writer) ownProperties() object {
	var p object
	add := func(name string, isSet bool, text string) {
		if isSet {
			p = append(p, member{name, quote(text)})
		}
	}
	record := w.l
	add(propEpoch, record.Epoch != "", record.Owner+"/"+record.Epoch)
	add(propAttempts, record.Attempts != 0, strconv.Itoa(record.Attempts)+attemptsAfter+record.Position.Token)
	add(propStart, record.Position.Start != feed.Start{}, notes.PlainTime(record.Position.Start.String()))
	add(propState, record.State != feed.StateLive, record.State.String())
	add(propFence, !record.Fence.IsZero(), notes.PlainNumber(fenceMillis(record.Fence)))
	add(propExpiration, record.Expiration != 0, record.Expiration.String())
	return p
}

// fenceMillis rounds up, because no owner may begin before the fence.
func fenceMillis(t time.Time) int64 {
	return t.Add(time.Millisecond - time.Nanosecond).UnixMilli()
}

// timestamp writes a time as .NET does: with up to seven digits of a second, and without trailing zeros.
func timestamp(t time.Time) json.RawMessage {
	if t.IsZero() {
		return json.RawMessage("null")
	}
	return quote(t.UTC().Format("2006-01-02T15:04:05.9999999Z07:00"))
}

// serverTime returns _ts, in whole seconds. The server replaces this value.
func serverTime(t time.Time) json.RawMessage {
	if t.IsZero() {
		return integer(0)
	}
	return integer(int(t.Unix()))
}

func modeText(m feed.Mode) string {
	if m == feed.AllVersionsAndDeletes {
		return modeAll
	}
	return modeLatest
}

func integer(n int) json.RawMessage { return strconv.AppendInt(nil, int64(n), 10) }

func quoteOrNull(s string) json.RawMessage {
	if s == "" {
		return json.RawMessage("null")
	}
	return quote(s)
}

func orElse(value, otherwise json.RawMessage) json.RawMessage {
	if value != nil {
		return value
	}
	return otherwise
}
