// Package leasedoc converts between lease records and the JSON documents of the .NET change feed processor (v3). So a
// single lease container serves this processor, a .NET deployment unit, and the scalers and dashboards that know
// .NET's documents.
//
//   - [ID], [KindOf] and [Prefix] define the naming scheme of the documents; [Unit] finds
//     the documents of a unit under every name that this machine has.
//   - [Marshal] writes a record as .NET does: same members, same order, same
//     nulls. Unknown members and properties are copied from Record.Raw, because
//     another processor may need them.
//   - [Unmarshal] reads leniently: leases on partition key range ids (version 0), on
//     EPK ranges (version 1), of the older V2 library, and Java's. It never fails: if a
//     document is no valid record, Record.Err is set, and the record has as many fields as
//     could be read, because an operator must see such a document in the listing.
//
// The fields of a record that .NET lacks are strings in the document's properties. .NET reads them and writes them
// back unchanged, because none of them looks like a time:
//
//	changefeed.epoch       <owner>/<epoch>; an epoch of another owner is ignored
//	changefeed.attempts    how often the handler received the change after the position, and that position
//	changefeed.start       now, beginning or "at" and a time, in addition to the continuation
//	changefeed.state       splitting, retired, or the word for a state of a later version
//	changefeed.fence       # and Unix milliseconds
//	changefeed.expiration  a duration, such as 1m0s
//
// Java's leases can be read but not written, because their state is wrapped in base64, and a document with .NET's
// token would stop a Java host. Their records have the error [ErrJava].
package leasedoc

import (
	"fmt"
	"strings"

	"github.com/millrace/changefeed/feed"
)

// ErrJava is the Err of a lease of a Java processor. Range, owner, position and mode of such a record are valid.
var ErrJava = fmt.Errorf("%w: it is a Java processor's", feed.ErrForeignLease)

// The two possible partition key paths of a lease container.
const (
	pathID           = "/id"
	pathPartitionKey = "/partitionKey"
)

// leaseInfix is between prefix and token in the id of a lease. In the ids of other records, there is a dot, the kind
// and, if the record has a token, another dot.
const leaseInfix = ".."

// Prefix returns the common beginning of the ids of a deployment unit, as in .NET, without a separator between
// processor and host.
func Prefix(processor, accountHost, dbRID, containerRID string) string {
	return processor + accountHost + "_" + dbRID + "_" + containerRID
}

// ID returns the id of a record's document.
func ID(prefix string, kind feed.Kind, token string) string {
	switch {
	case kind == feed.KindLease:
		return prefix + leaseInfix + token
	case token == "" || isSingle(kind):
		return prefix + "." + string(kind)
	}
	return prefix + "." + string(kind) + "." + escaper.Replace(token)
}

// isSingle reports whether a unit has at most a single record of a kind. Such a record has no token.
func isSingle(kind feed.Kind) bool {
	return kind == feed.KindInfo || kind == feed.KindLock
}

// KindOf returns the kind and token of the record with an id; ok is false if the id belongs to another unit.
func KindOf(prefix, id string) (kind feed.Kind, token string, ok bool) {
	if token, ok := strings.CutPrefix(id, prefix+leaseInfix); ok {
		return feed.KindLease, token, token != ""
	}
	rest, ok := strings.CutPrefix(id, prefix+".")
	word, token, many := strings.Cut(rest, ".")
	kind = feed.Kind(word)
	switch {
	case !ok || !isWord(word) || kind == feed.KindLease: // ids of leases have another form
		return "", "", false
	case many && (token == "" || isSingle(kind)), !many && kind == feed.KindHost:
		return "", "", false
	}
	return kind, unescaper.Replace(token), true
}

// isWord reports whether a text can be a kind or a state: a word of lower-case letters. The rest of another unit's
// prefix is not such a word, because that rest contains a host name and resource ids.
func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz") == ""
}

// Tokens of records other than leases may contain any text, such as the name of an instance. They are escaped,
// because the service's gateway cannot reach items whose ids contain / \ ? # or %.
var (
	escaper   = strings.NewReplacer("~", "~7E", "/", "~2F", `\`, "~5C", "?", "~3F", "#", "~23", "%", "~25")
	unescaper = strings.NewReplacer("~7E", "~", "~2F", "/", "~5C", `\`, "~3F", "?", "~23", "#", "~25", "%")
)

// The members of a document, in .NET's order.
const (
	memberID           = "id"
	memberPartitionKey = "partitionKey"
	memberVersion      = "version"
	memberETag         = "_etag"
	memberToken        = "LeaseToken"
	memberPartitionID  = "PartitionId" // the V2 library's name for LeaseToken
	memberFeedRange    = "FeedRange"
	memberOwner        = "Owner"
	memberContinuation = "ContinuationToken"
	memberProperties   = "properties"
	memberTimestamp    = "timestamp"
	memberTs           = "_ts"
	memberMode         = "Mode"
	memberTTL          = "ttl"
)

// Our own properties.
const (
	ours           = "changefeed."
	propEpoch      = ours + "epoch"
	propAttempts   = ours + "attempts"
	propStart      = ours + "start"
	propState      = ours + "state"
	propFence      = ours + "fence"
	propExpiration = ours + "expiration"
)

// attemptsAfter separates the number of attempts from the position for which they count.
const attemptsAfter = " after "

// isOurs reports whether Marshal writes the property from a field of the record.
func isOurs(property string) bool {
	switch property {
	case propEpoch, propAttempts, propStart, propState, propFence, propExpiration:
		return true
	}
	return false
}

// The values of Mode: the A-IM headers of the two feeds.
const (
	modeLatest = "Incremental Feed"
	modeAll    = "Full-Fidelity Feed"
)

// maxTTL is the service's longest time to live, in seconds.
const maxTTL = 1<<31 - 1
