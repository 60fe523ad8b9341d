package wire

import (
	"slices"
	"strconv"

	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Versions of the protocol. A request names its version in x-ms-version, and the form of some replies depends on it.

// versions are the versions before the first that later ones extend.
var versions = []string{
	"2014-08-21", "2015-04-08", "2015-06-03", "2015-08-06", "2015-12-16", "2016-05-30", "2016-07-11", "2016-11-14",
	"2017-01-19", "2017-02-22", "2017-05-03", "2017-11-15", "2018-06-18", "2018-08-31", "2018-09-17", "2018-12-31",
	"2019-10-14",
}

// Versions with another form of replies, or with something new.
const (
	versionRanges    = "2015-12-16" // session tokens name their range
	versionVectors   = "2018-06-18" // session tokens have a version and an LSN
	versionPlain     = "2018-09-17" // indexing policies have no kinds of indexes
	versionMultiHash = "2020-07-15" // hierarchical partition keys, and every later version
)

// RefuseVersion refuses a version that the service does not have. A missing header means the newest version.
func RefuseVersion(version string) error {
	if version == "" || version >= versionMultiHash && len(version) == len(versionMultiHash) ||
		slices.Contains(versions, version) {
		return nil
	}
	return BadRequest("The requested version is not supported. x-ms-version is %.64q: want a version such as %s",
		version, versionMultiHash)
}

// HasMultiHash reports whether a version has hierarchical partition keys.
func HasMultiHash(version string) bool { return version == "" || version >= versionMultiHash }

// HasIndexKinds reports whether the indexing policies of a version have kinds of indexes for each path.
func HasIndexKinds(version string) bool { return version != "" && version < versionPlain }

// SessionToken returns the session token of a partition, in the form of a version.
func SessionToken(version, partition string, lsn int64) string {
	switch {
	case version == "" || version >= versionVectors:
		return service.SessionToken(partition, lsn)
	case version >= versionRanges:
		return partition + ":" + strconv.FormatInt(lsn, 10)
	}
	return strconv.FormatInt(lsn, 10)
}
