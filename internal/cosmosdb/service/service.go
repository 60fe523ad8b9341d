// Package service holds what the client, the embedded store and the server have to know alike of Azure Cosmos DB: limits,
// tokens, charges, and the system properties of a document. It imports the standard library only.
package service

import (
	"strconv"
	"strings"
)

// Limits of the service.
const (
	MaxItem      = 2 << 20 // bytes of an item
	MaxBatch     = 100     // writes of a transactional batch
	MaxBatchSize = 2 << 20 // bytes of its bodies
	MaxPage      = 4 << 20 // bytes of a page; a larger transaction, or row, comes alone
	MaxPatch     = 10      // operations of a patch
)

// SystemRoom is the capacity after the body of an item, in bytes, that its system properties
// need.
const SystemRoom = 256

// Token is the continuation of a change feed after an LSN: the number in quotes, as an ETag.
func Token(lsn int64) string { return `"` + strconv.FormatInt(lsn, 10) + `"` }

// LSN is the LSN of a [Token], which may lack its quotes. It is not ok for any other text.
func LSN(token string) (lsn int64, ok bool) {
	if n := len(token); n > 2 && token[0] == '"' && token[n-1] == '"' {
		token = token[1 : n-1]
	}
	n, err := strconv.ParseUint(token, 10, 63)
	return int64(n), err == nil
}

// SessionToken is the token of a session that has seen a partition up to an LSN.
func SessionToken(partition string, lsn int64) string {
	return partition + ":-1#" + strconv.FormatInt(lsn, 10)
}

// Session reads what a session has seen of one partition: id:lsn, id:version#lsn, or that followed by the LSNs of regions.
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
