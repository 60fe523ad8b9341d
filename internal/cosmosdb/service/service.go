// Package service contains the facts about Azure Cosmos DB that the client, the embedded store and the server must
// share: limits, tokens, charges, and the system properties of a document. The package imports only the standard
// library.
package service

import (
	"strconv"
	"strings"
)

// Limits of the service.
const (
	MaxItem      = 2 << 20 // bytes of an item
	MaxBatch     = 100     // writes in a transactional batch
	MaxBatchSize = 2 << 20 // bytes of the bodies in a batch
	MaxPage      = 4 << 20 // bytes of a page; a larger transaction, or row, is a page of its own
	MaxPatch     = 10      // operations in a patch
)

// SystemRoom is the capacity, in bytes, that a body needs for its system properties.
const SystemRoom = 256

// Token returns the continuation of a change feed after an LSN: the number in quotes, like an ETag. A negative number
// is no LSN and has no continuation: Token returns "", because [LSN] refuses the number.
func Token(lsn int64) string {
	if lsn < 0 {
		return ""
	}
	return `"` + strconv.FormatInt(lsn, 10) + `"`
}

// LSN returns the LSN of a [Token], which may lack its quotes. For any other text ok is false.
func LSN(token string) (lsn int64, ok bool) {
	if n := len(token); n > 2 && token[0] == '"' && token[n-1] == '"' {
		token = token[1 : n-1]
	}
	n, err := strconv.ParseUint(token, 10, 63)
	return int64(n), err == nil
}

// SessionToken returns the token of a session that has seen a partition up to an LSN.
func SessionToken(partition string, lsn int64) string {
	return partition + ":-1#" + strconv.FormatInt(lsn, 10)
}

// Session parses the token of a session for a partition: id:lsn, or id:version#lsn, which may be followed by the LSNs
// of regions.
func Session(token string) (partition string, lsn int64, ok bool) {
	partition, rest, ok := strings.Cut(strings.TrimSpace(token), ":")
	if version, vector, is := strings.Cut(rest, "#"); is {
		if _, err := strconv.ParseInt(version, 10, 64); err != nil {
			return "", 0, false
		}
		rest, _, _ = strings.Cut(vector, "#")
	}
	lsn, err := strconv.ParseInt(rest, 10, 64)
	return partition, lsn, ok && partition != "" && err == nil
}

// EmulatorKey is the well-known key of the service's emulator, which protects nothing.
const EmulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
