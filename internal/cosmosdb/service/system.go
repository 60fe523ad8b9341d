package service

import (
	"bytes"
	"strconv"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// System contains the members that a store adds to each document.
type System struct {
	Container string // self link of the container, with a slash at its end
	RID       string // resource id of the document
	ETag      string // with its quotes, as in a header
	Time      int64  // of the commit, in Unix seconds
}

// IsSystem reports whether a member belongs to the store. As in the service, a user's value for such a member is
// dropped and not refused, because clients send documents back as they read them. Only the feed of latest versions
// has _lsn.
func IsSystem[T string | []byte](name T) bool {
	switch string(name) {
	case "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn":
		return true
	}
	return false
}

// Size returns the largest number of bytes that Append appends.
func (s *System) Size() int {
	const frame = `"_rid":"","_self":"docs//","_etag":"","_attachments":"attachments/","_ts":-9223372036854775808`
	return len(frame) + len(s.Container) + 2*len(s.RID) + 2*len(s.ETag)
}

// Append appends the members in the service's order, with commas between. They must be the last members of their
// document, so [SystemText] finds them from the end.
func (s *System) Append(dst []byte) []byte {
	dst = append(append(dst, `"_rid":"`...), s.RID...)
	dst = append(append(dst, `","_self":"`...), s.Container...)
	dst = append(append(append(dst, `docs/`...), s.RID...), `/","_etag":`...)
	dst = rawjson.AppendString(dst, s.ETag)
	dst = append(dst, `,"_attachments":"attachments/","_ts":`...)
	return strconv.AppendInt(dst, s.Time, 10)
}

// SystemText returns a string that [System.Append] wrote at the end of a document, or "". The search begins at the
// end, because the user's text comes before.
func SystemText(doc []byte, name string) string {
	at := bytes.LastIndex(doc, []byte(`"`+name+`":"`))
	if at < 0 {
		return ""
	}
	s := rawjson.Scan(doc, at+len(name)+len(`"":`))
	return rawjson.Text(s.Value().Of(doc))
}
