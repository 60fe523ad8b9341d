package wire

import "github.com/millrace/changefeed/feed"

// Key is a partition key as it travels; the store reads it. Only its size is checked.
func Key(text string) (feed.PartitionKey, error) {
	if len(text) > maxKeyText {
		return "", BadRequest("partition key has %d bytes: want at most %d", len(text), maxKeyText)
	}
	return feed.PartitionKey(text), nil
}
