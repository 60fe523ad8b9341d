package wire

import "github.com/millrace/changefeed/feed"

// Key returns a partition key as the client sent it. Only its size is checked here; the store parses it.
func Key(text string) (feed.PartitionKey, error) {
	if len(text) > maxKeyText {
		return "", BadRequest("partition key has %d bytes: want at most %d", len(text), maxKeyText)
	}
	return feed.PartitionKey(text), nil
}
