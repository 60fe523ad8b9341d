package records

import (
	"crypto/sha256"
	"fmt"

	"github.com/millrace/changefeed/feed"
)

// LetterID names the letter of a change, and the change in the notes of a lease. In latest-version mode its place among
// the changes of its LSN moves when another item of the transaction is written again, so it is named by its item.
func LetterID(m feed.Mode, lsn int64, place int, item string) string {
	if m == feed.AllVersionsAndDeletes {
		return fmt.Sprintf("%d.%d", lsn, place)
	}
	// Half of the hash is as much as nobody finds two items for, not even who chooses their names.
	h := sha256.Sum256([]byte(item))
	return fmt.Sprintf("%d.%x", lsn, h[:sha256.Size/2])
}
