package service

import (
	"bytes"
	"strconv"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// System are the members that a store adds to each document.
type System struct {
	Container string // self link of the container, with a slash at its end
	RID       string // resource id of the document
	ETag      string // with its quotes, as a header carries it
	Time      int64  // of the commit, in Unix seconds
}

// IsSystem reports whether a member belongs to the store. A user's value for such a
// member is dropped and not refused, as in the service, because clients send back
// documents as read. Only the feed of latest versions has _lsn.
func IsSystem[T string | []byte](name T) bool {
	switch string(name) {
	case "_rid", "_self", "_etag", "_attachments", "_ts", "_lsn":
		return true
	}
	return false
}

// Size returns how many bytes Append appends at most.
func (s *System) Size() int {
	const frame = `"_rid":"","_self":"docs//","_etag":"","_attachments":"attachments/","_ts":-9223372036854775808`
	return len(frame) + len(s.Container) + 2*len(s.RID) + 2*len(s.ETag)
}

// Append appends the members in the service's order, with commas between. They end their
// document, so that [SystemText] finds them from there.
func (s *System) Append(dst []byte) []byte {
	dst = append(append(dst, `"_rid":"`...), s.RID...)
	dst = append(append(dst, `","_self":"`...), s.Container...)
	dst = append(append(append(dst, `docs/`...), s.RID...), `/","_etag":`...)
	dst = rawjson.AppendString(dst, s.ETag)
	dst = append(dst, `,"_attachments":"attachments/","_ts":`...)
	return strconv.AppendInt(dst, s.Time, 10)
}

// SystemText returns one of the strings that [System.Append] wrote at the end of a
// document; empty for none. The search begins at the end, where no text of a user's is.
func SystemText(doc []byte, name string) string {
	at := bytes.LastIndex(doc, []byte(`"`+name+`":"`))
	if at < 0 {
		return ""
	}
	s := rawjson.Scan(doc, at+len(name)+len(`"":`))
	return rawjson.Text(s.Value().Of(doc))
}
