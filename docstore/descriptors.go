package docstore

const (
	mostTables    = 990 // files of sorted data that are kept open
	fewestTables  = 16
	otherFiles    = 24 // logs, manifest, directories, and those that are being written
	tablesOfShard = 16
)

// Descriptors is how many file descriptors a store uses at most: about 1,000 for a large
// one, and never more than half of what the system allows the process. A server keeps its
// connections below the rest.
func Descriptors() int { return openTables() + otherFiles }

// openTables is how many tables are kept open.
func openTables() int {
	limit := descriptorLimit()
	if limit <= 0 {
		return mostTables
	}
	return max(min(limit/2-otherFiles, mostTables), fewestTables)
}
