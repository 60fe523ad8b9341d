package engine

const (
	// An open table saves an open and a read of its index for each lookup. The largest number is the library's
	// default; the smallest number is enough for a compaction of several tables.
	mostTables    = 990 // files of sorted data that are kept open
	fewestTables  = 16
	otherFiles    = 24 // logs, manifest, directories, and files being written
	tablesOfShard = 16
)

// MaxDescriptors returns how many file descriptors an engine uses at most.
func MaxDescriptors() int { return openTables() + otherFiles }

// openTables returns how many tables are kept open.
func openTables() int { return tablesWithin(descriptorLimit()) }

// tablesWithin returns how many tables may be open in a process with a limit of descriptors; 0 means no limit. The
// rest of the process keeps half of the limit.
func tablesWithin(limit int) int {
	if limit <= 0 {
		return mostTables
	}
	return max(min(limit/2-otherFiles, mostTables), fewestTables)
}
