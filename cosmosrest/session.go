package cosmosrest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/changefeed"
)

const (
	headerConsistency = "X-Ms-Consistency-Level"
	maxSession        = 64 << 10 // bytes of a session token; the service's containers have many ranges
)

var consistencies = []string{"Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual"}

// consistent refuses a read that this server cannot serve as it is asked: with an unknown
// consistency level, or by a session that has seen more of the partition than there is,
// up to the LSN newest. All levels are served, and each as Strong.
func (c *call) consistent(part changefeed.Partition, newest int64) error {
	if level := c.header(headerConsistency); level != "" && !slices.ContainsFunc(consistencies, func(s string) bool { return strings.EqualFold(s, level) }) {
		return badRequest("header x-ms-consistency-level is %q: want one of %s", level, strings.Join(consistencies, ", "))
	}
	token := c.header(headerSession)
	if token == "" {
		return nil
	}
	if len(token) > maxSession {
		return badRequest("header x-ms-session-token has %d bytes: want at most %d", len(token), maxSession)
	}
	for one := range strings.SplitSeq(token, ",") {
		id, lsn, ok := parseSession(one)
		if !ok {
			return badRequest("session token %q is invalid: want one such as 0:-1#5", one)
		}
		if lsn > newest && (id == part.ID || slices.Contains(part.Parents, id)) {
			return newFault(http.StatusNotFound, subNoSession, "NotFound",
				"The read session is not available for the input session token %q: partition %s is at LSN %d", one, part.ID, newest)
		}
	}
	return nil
}

// sessionToken is what a session knows that has seen a partition up to an LSN.
func sessionToken(partition string, lsn int64) string {
	return partition + ":-1#" + strconv.FormatInt(lsn, 10)
}

// parseSession reads what a session has seen of one range: id:lsn, id:version#lsn, or
// that with the LSNs of regions behind it.
func parseSession(token string) (id string, lsn int64, ok bool) {
	id, rest, ok := strings.Cut(strings.TrimSpace(token), ":")
	if version, vector, is := strings.Cut(rest, "#"); is {
		if _, err := strconv.ParseInt(version, 10, 64); err != nil {
			return "", 0, false
		}
		rest, _, _ = strings.Cut(vector, "#")
	}
	lsn, err := strconv.ParseInt(rest, 10, 64)
	return id, lsn, ok && id != "" && err == nil
}
