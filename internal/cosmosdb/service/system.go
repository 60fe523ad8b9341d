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

	// Added are the user's members that patches have added, with commas between. As in the service, they stand before
	// _ts, because a patch appends to the document as it is stored.
	Added []byte
	// Bare leaves out _self and _attachments, for which a client can ask when it writes a document.
	Bare bool
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
	return len(frame) + len(s.Container) + 2*len(s.RID) + 2*len(s.ETag) + len(",") + len(s.Added)
}

// Append appends the members in the service's order, with commas between. They must be the last members of their
// document, so [SystemText] finds them from the end if nothing was added.
func (s *System) Append(dst []byte) []byte {
	dst = append(append(dst, `"_rid":"`...), s.RID...)
	if !s.Bare {
		dst = append(append(dst, `","_self":"`...), s.Container...)
		dst = append(append(append(dst, `docs/`...), s.RID...), '/')
	}
	dst = rawjson.AppendString(append(dst, `","_etag":`...), s.ETag)
	dst = append(dst, ',')
	if !s.Bare {
		dst = append(dst, attachments+","...)
	}
	if len(s.Added) > 0 {
		dst = append(append(dst, s.Added...), ',')
	}
	return strconv.AppendInt(append(dst, `"_ts":`...), s.Time, 10)
}

// attachments is the member before _ts, unless a patch has added members.
const attachments = `"_attachments":"attachments/"`

// SystemText returns a string that [System.Append] wrote in a document, or "". If only system properties are at the
// end of the document, the search begins there, because the user's text comes before.
func SystemText(doc []byte, name string) string {
	if !isPlain(doc) {
		return rawjson.Text(rawjson.Lookup(doc, name))
	}
	at := bytes.LastIndex(doc, []byte(`"`+name+`":"`))
	if at < 0 {
		return ""
	}
	s := rawjson.Scan(doc, at+len(name)+len(`"":`))
	return rawjson.Text(s.Value().Of(doc))
}

// isPlain reports whether _attachments and _ts are the last two members, so nothing of the user is behind the system
// properties. These bytes cannot be a part of a text, where each quote has a backslash, which is why they begin with a
// comma.
func isPlain(doc []byte) bool {
	const last = len("}")
	if len(doc) < last {
		return false
	}
	rest := bytes.TrimRight(doc[:len(doc)-last], "-0123456789")
	return bytes.HasSuffix(rest, []byte(`,`+attachments+`,"_ts":`))
}
