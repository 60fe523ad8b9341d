package wire

import (
	"net/http"
	"slices"
	"strings"
)

// The table of reply headers. Which replies of the service have a header depends on the kind of resource and on what
// the request does. The server sends its headers from this table, and the tests check all replies of the server and
// the recorded replies of the service against it.

// ReplySet is a set of replies: kinds of resources, and classes of replies.
type ReplySet uint64

// Classes of replies.
const (
	readReply   = iota // a single resource
	listReply          // a set of resources, a query, a change feed
	writeReply         // a create, replace, patch, batch
	deleteReply        // a delete
	errorReply         // any error
	classes
)

// replyKinds are the kinds of resources in the table. A kind that is not listed counts as the last, which has the
// requests that the service does not have, and paths that name nothing. A query plan comes from the gateway of the
// service, so its reply has no LSN.
var replyKinds = []string{"", "dbs", "colls", "docs", "pkranges", "offers", "users", "permissions", PlanReply, OwnReply}

// Kinds of replies that are no kinds of resources.
const (
	PlanReply = "plan"
	OwnReply  = "own" // of this server alone
)

// repliesOf returns the replies of some kinds and classes.
func repliesOf(kinds string, of ...int) (set ReplySet) {
	for i, kind := range replyKinds {
		if kind == "" {
			kind = "account"
		}
		for _, class := range of {
			if kinds == "*" || strings.Contains(" "+kinds+" ", " "+kind+" ") {
				set |= 1 << (i*classes + class)
			}
		}
	}
	return set
}

// Reply returns the set of a single reply. list says that the request is a query or reads a set.
func Reply(kind, method string, list bool, status int) ReplySet {
	at := slices.Index(replyKinds, kind)
	if at < 0 {
		at = len(replyKinds) - 1
	}
	class := writeReply
	switch {
	case status >= http.StatusBadRequest:
		class = errorReply
	case list:
		class = listReply
	case method == http.MethodGet:
		class = readReply
	case method == http.MethodDelete:
		class = deleteReply
	}
	return 1 << (at*classes + class)
}

// Has reports whether the sets have a reply in common.
func (s ReplySet) Has(one ReplySet) bool { return s&one != 0 }

// ReplyHeader is a header of replies.
type ReplyHeader struct {
	Name string // in lower case

	Always ReplySet // replies that have the header
	Maybe  ReplySet // replies that have the header if the request asks for it, or if there is something to say

	// Why is why the service differs: its replies have the header where ours lack it, or the other way round. Empty
	// means that the service does the same.
	Why string

	key    string   // as net/http's map has the name
	values []string // of a header that is the same in all replies; otherwise the operation sets the header
}

// ReplyHeaders returns the table.
func ReplyHeaders() []ReplyHeader { return replyHeaders }

// Sets of replies that several headers have.
var (
	anyReply  = repliesOf("*", readReply, listReply, writeReply, deleteReply, errorReply)
	goodReply = repliesOf("*", readReply, listReply, writeReply, deleteReply)
	anyError  = repliesOf("*", errorReply)
	// replies with an LSN: of a partition with documents, or of the master partition, which has the rest
	withLSN = repliesOf("dbs colls docs offers users permissions", readReply, listReply, writeReply, deleteReply)
	// replies of a primary replica, which knows the quorum. A read of the service may come from any replica.
	ofPrimary = repliesOf("dbs colls offers users permissions", writeReply, deleteReply) |
		repliesOf("colls", readReply) | repliesOf("docs", readReply, listReply, writeReply, deleteReply)
	ofDocs = repliesOf("docs", readReply, listReply, writeReply, deleteReply)
	// replies about a container that no partition gives
	besideDocs = repliesOf("plan own", readReply, listReply, writeReply, deleteReply)
)

// Reasons in the table.
const (
	onlyLater  = "replies of 2019 and 2020 lack it, later ones have it"
	onlyReads  = "a read has it if a primary replica answers; the only replica here is one"
	onlyAsked  = "one reply of 2020 has it, although the request does not ask for it"
	ofPages    = "pages of a query of 2022 lack it, other pages have it"
	sinceFeeds = "reads of all items have it since 2023"
	isStandard = "net/http sends it"
)

// replyHeaders is sorted by name.
var replyHeaders = table(
	ReplyHeader{Name: "allow", Maybe: anyError, Why: "lists the methods that a 405 lacks"},
	ReplyHeader{Name: "cache-control", Always: goodReply, values: noStore, Why: ofPages},
	ReplyHeader{Name: "collection-partition-index", Always: ofContainer, Maybe: containerQuery, values: zero},
	ReplyHeader{Name: "collection-service-index", Always: ofContainer, Maybe: containerQuery, values: zero},
	ReplyHeader{Name: "connection", Maybe: anyError, Why: "the sender is unknown, or did not send its whole body"},
	ReplyHeader{
		Name: "content-length", Maybe: anyReply,
		Why: "the service sends most replies in chunks; a 204 must not have it, but the service's has",
	},
	ReplyHeader{
		Name:   "content-location",
		Always: repliesOf("dbs colls docs pkranges offers users permissions", readReply, deleteReply),
		Maybe:  goodReply,
	},
	ReplyHeader{Name: "content-type", Always: anyReply &^ repliesOf("*", writeReply), Maybe: anyReply},
	ReplyHeader{Name: "date", Maybe: anyReply, Why: isStandard},
	ReplyHeader{Name: "etag", Maybe: goodReply},
	ReplyHeader{Name: "lsn", Always: withLSN, Maybe: anyReply},
	ReplyHeader{Name: "pragma", Always: goodReply, values: noCache, Why: ofPages},
	ReplyHeader{Name: "server", Why: "x-ms-serviceversion names the server"},
	ReplyHeader{
		Name: "strict-transport-security",
		Why:  "a browser would refuse every other server of this host that has no TLS",
	},
	ReplyHeader{Name: "transfer-encoding", Why: isStandard},
	ReplyHeader{
		Name: "x-ms-aad-applied-role-assignment", Why: "roles come from a file, and their assignments have no ids",
	},
	ReplyHeader{Name: "x-ms-activity-id", Always: anyReply, Why: "the service's account leaves it out"},
	ReplyHeader{Name: "x-ms-alt-content-path", Maybe: goodReply},
	ReplyHeader{Name: "x-ms-content-path", Maybe: goodReply},
	ReplyHeader{Name: "x-ms-continuation", Maybe: repliesOf("*", listReply)},
	ReplyHeader{Name: "x-ms-cosmos-index-utilization", Maybe: repliesOf("docs", listReply)},
	ReplyHeader{
		Name: "x-ms-cosmos-is-partition-key-delete-pending", Maybe: repliesOf("docs", listReply), Why: sinceFeeds,
	},
	ReplyHeader{Name: "x-ms-cosmos-item-llsn", Always: itemLSN, Maybe: ofDocs | newContainer},
	ReplyHeader{Name: "x-ms-cosmos-llsn", Always: withLSN, Maybe: anyReply},
	ReplyHeader{Name: "x-ms-cosmos-min-throughput", Maybe: repliesOf("offers", readReply, writeReply)},
	ReplyHeader{
		Name: "x-ms-cosmos-physical-partition-id", Why: "a partition has no other id than that of its range",
	},
	ReplyHeader{
		Name: "x-ms-cosmos-query-execution-info", Maybe: repliesOf("docs colls", listReply), Why: sinceFeeds,
	},
	ReplyHeader{Name: AnswerDistribution, Maybe: repliesOf("docs", listReply)},
	ReplyHeader{Name: "x-ms-cosmos-quorum-acked-llsn", Always: ofPrimary, Maybe: anyError, Why: onlyReads},
	ReplyHeader{Name: "x-ms-current-replica-set-size", Always: ofPrimary, Maybe: anyError, Why: onlyReads},
	ReplyHeader{Name: "x-ms-current-write-quorum", Always: ofPrimary, Maybe: anyError, Why: onlyReads},
	ReplyHeader{Name: "x-ms-databaseaccount-consumed-mb", Always: ofAccount, values: zero},
	ReplyHeader{Name: "x-ms-databaseaccount-provisioned-mb", Always: ofAccount, values: zero},
	ReplyHeader{Name: "x-ms-databaseaccount-reserved-mb", Always: ofAccount, values: zero},
	ReplyHeader{
		Name:  "x-ms-documentdb-collection-index-transformation-progress",
		Maybe: repliesOf("colls", readReply), Why: "a replace has it if indexes are rebuilt; here none are",
	},
	ReplyHeader{
		Name: "x-ms-documentdb-partitionkeyrangeid", Always: ofDocs | repliesOf("colls", readReply, writeReply),
		Maybe: repliesOf("docs colls plan own", errorReply) | besideDocs, Why: onlyLater,
	},
	ReplyHeader{Name: "x-ms-documentdb-query-metrics", Maybe: repliesOf("docs", listReply)},
	ReplyHeader{Name: "x-ms-gatewayversion", Always: anyReply, values: gatewayVersion},
	ReplyHeader{Name: "x-ms-global-committed-lsn", Always: withLSN, Maybe: anyReply},
	ReplyHeader{Name: "x-ms-indexing-directive"}, // in replies of 2015
	ReplyHeader{Name: "x-ms-item-count", Maybe: repliesOf("*", listReply, writeReply)},
	ReplyHeader{Name: "x-ms-item-lsn", Always: itemLSN, Maybe: ofDocs | newContainer},
	ReplyHeader{Name: "x-ms-last-state-change-utc", Always: anyReply, values: startTime, Why: onlyLater},
	ReplyHeader{Name: "x-ms-max-media-storage-usage-mb", Always: ofAccount, values: zero},
	ReplyHeader{Name: "x-ms-media-storage-usage-mb", Always: ofAccount, values: zero},
	ReplyHeader{Name: "x-ms-number-of-read-regions", Always: anyReply, values: zero, Why: onlyLater},
	ReplyHeader{Name: "x-ms-offer-replace-pending", Maybe: repliesOf("offers", readReply, writeReply)},
	ReplyHeader{Name: "x-ms-quorum-acked-lsn", Always: ofPrimary, Maybe: anyError, Why: onlyReads},
	ReplyHeader{Name: "x-ms-request-charge", Always: anyReply, Why: "the service's account leaves it out"},
	ReplyHeader{Name: "x-ms-request-duration-ms", Always: anyReply, Why: onlyLater},
	ReplyHeader{
		Name: "x-ms-resource-quota", Always: ofDocs | ofMaster |
			repliesOf("colls", listReply, deleteReply),
		Maybe: repliesOf("colls", readReply) | besideDocs, Why: onlyAsked,
	},
	ReplyHeader{
		Name: "x-ms-resource-usage", Always: ofDocs | ofMaster |
			repliesOf("colls", listReply, deleteReply),
		Maybe: repliesOf("colls", readReply) | besideDocs, Why: onlyAsked,
	},
	ReplyHeader{Name: "x-ms-retry-after-ms", Maybe: anyError},
	ReplyHeader{Name: "x-ms-schemaversion", Always: anyReply, values: schemaVersion, Why: onlyLater},
	ReplyHeader{Name: "x-ms-serviceversion", Always: anyReply, values: serviceVersion, Why: onlyLater},
	ReplyHeader{Name: "x-ms-session-token", Always: withLSN, Maybe: anyReply},
	ReplyHeader{Name: "x-ms-share-throughput", Maybe: ofContainer},
	ReplyHeader{Name: "x-ms-substatus", Maybe: anyError | repliesOf("docs", writeReply)},
	ReplyHeader{Name: "x-ms-transport-request-id", Always: anyReply, values: one, Why: onlyLater},
	ReplyHeader{Name: "x-ms-xp-role", Always: anyReply, values: one, Why: onlyLater},
)

// Sets of a single kind.
var (
	ofAccount   = repliesOf("account", readReply)
	ofContainer = repliesOf("colls", readReply, writeReply, deleteReply)
	itemLSN     = repliesOf("dbs colls users permissions", readReply)
	// the kinds whose every reply says how many resources there are
	ofMaster = repliesOf("dbs users permissions", readReply, listReply, writeReply, deleteReply)

	newContainer   = repliesOf("colls", writeReply) // and a replaced one, which does not have all of its headers
	containerQuery = repliesOf("colls", listReply)  // and a list, which does not have all of its headers
)

// table sets the keys of the rows.
func table(rows ...ReplyHeader) []ReplyHeader {
	for i := range rows {
		rows[i].key = rows[i].Name
		if name := rows[i].Name; !strings.HasPrefix(name, "x-ms-") && !strings.HasPrefix(name, "collection-") &&
			name != AnswerETag && name != AnswerLSN {
			rows[i].key = http.CanonicalHeaderKey(name) // HTTP defines the header
		}
	}
	return rows
}

// constantHeaders are the rows whose values never change.
var constantHeaders = func() (rows []ReplyHeader) {
	for _, row := range replyHeaders {
		if row.values != nil {
			rows = append(rows, row)
		}
	}
	return rows
}()
