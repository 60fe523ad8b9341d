package wire

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Consistency. A store has only a single copy of all data, so each level is served as Strong. A session token is only
// checked: the token must be valid, and must not be from a newer store than this one.

// Consistencies are the service's levels, in order from the strongest.
var Consistencies = []string{"Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual"}

// RefuseStronger refuses a consistency level that is stronger than the account's.
func RefuseStronger(level, account string) error {
	asked := slices.IndexFunc(Consistencies, func(s string) bool { return strings.EqualFold(s, level) })
	if asked < 0 || asked >= slices.Index(Consistencies, account) {
		return nil
	}
	return BadRequest("ConsistencyLevel %s specified in the request is invalid when service is configured with "+
		"consistency level %s. "+
		"Ensure the request consistency level is not stronger than the service consistency level. "+
		"Header x-ms-consistency-level is %s: want %s or a weaker level, or a server that was started with "+
		"--consistency %s", Consistencies[asked], account, level, account, Consistencies[asked])
}

// Consistent refuses a read that the server cannot serve as requested: the consistency level is unknown, or the
// session has seen a higher LSN of the partition than newest. After a split, the session of a parent counts for its
// children.
func Consistent(level, session string, part feed.Partition, newest int64) error {
	if level != "" && !slices.ContainsFunc(Consistencies, func(s string) bool { return strings.EqualFold(s, level) }) {
		return BadRequest("header x-ms-consistency-level is %q: want one of %s", level,
			strings.Join(Consistencies, ", "))
	}
	if session == "" {
		return nil
	}
	if len(session) > maxSession {
		return BadRequest("header x-ms-session-token has %d bytes: want at most %d", len(session), maxSession)
	}
	for token := range strings.SplitSeq(session, ",") {
		id, lsn, ok := service.Session(token)
		if plain, err := strconv.ParseInt(token, 10, 64); err == nil { // of the oldest versions of the protocol
			id, lsn, ok = part.ID, plain, true
		}
		if !ok {
			return BadRequest("session token %q is invalid: want one such as 0:-1#5", token)
		}
		if lsn > newest && (id == part.ID || slices.Contains(part.Parents, id)) {
			return Errorf(http.StatusNotFound, SubNoSession, CodeNotFound,
				"The read session is not available for the input session token. The read/write session is not "+
					"available. The token is %q, and partition %s is at LSN %d", token, part.ID, newest)
		}
	}
	return nil
}
