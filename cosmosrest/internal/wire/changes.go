package wire

import (
	"strconv"
	"strings"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Changes as the feed shows them, in the three forms that clients can ask for.

// AddLatest appends a change of the latest-version feed: the document with its LSN. A body ends with the system
// properties, so there is always a member before the closing brace.
func (d *Documents) AddLatest(ch *feed.Change) {
	d.beginNext()
	d.text = append(d.text, ch.Body[:len(ch.Body)-1]...)
	d.text = append(d.text, `,"_lsn":`...)
	d.text = strconv.AppendInt(d.text, ch.LSN, 10)
	d.text = append(d.text, '}')
}

// AddWrapped appends a change of the latest-version feed, with its metadata next to the document.
func (d *Documents) AddWrapped(ch *feed.Change) {
	d.beginNext()
	d.text = append(append(d.text, `{"current":`...), ch.Body...)
	d.text = append(appendMetadata(d.text, ch), `}}`...)
}

// AddVersion appends a change of the feed of all versions and deletes. A delete has an empty document, and its
// metadata name the deleted document. paths are the container's partition key paths.
func (d *Documents) AddVersion(ch *feed.Change, paths []string) {
	d.beginNext()
	d.text = appendVersion(d.text, ch, paths)
}

// appendMetadata begins the metadata of a change with its LSN and its time in Unix seconds.
func appendMetadata(b []byte, ch *feed.Change) []byte {
	b = append(b, `,"metadata":{"lsn":`...)
	b = strconv.AppendInt(b, ch.LSN, 10)
	b = append(b, `,"crts":`...)
	return strconv.AppendInt(b, ch.Time.Unix(), 10)
}

// appendVersion does the work of [Documents.AddVersion].
func appendVersion(b []byte, ch *feed.Change, paths []string) []byte {
	b = append(b, `{"current":`...)
	if ch.Op == feed.OpDelete {
		b = append(b, `{}`...)
	} else {
		b = append(b, ch.Body...)
	}
	b = appendMetadata(b, ch)
	b = append(append(b, `,"operationType":"`...), ch.Op.String()...)
	b = append(b, `","previousImageLSN":`...)
	b = strconv.AppendInt(b, ch.PreviousLSN, 10)
	if ch.Op == feed.OpDelete {
		b = append(b, `,"timeToLiveExpired":`...)
		b = strconv.AppendBool(b, ch.Expired)
		b = append(b, `,"id":`...)
		b = rawjson.AppendString(b, ch.ID)
		b = append(b, `,"partitionKey":`...)
		b = appendKeyObject(b, ch.PartitionKey, paths)
	}
	b = append(b, '}')
	if len(ch.Previous) > 0 {
		b = append(append(b, `,"previous":`...), ch.Previous...)
	}
	return append(b, '}')
}

// appendKeyObject appends a partition key as an object, with the value of each path that the document has. Only
// deletes need this, so appendKeyObject may decode the key although decoding is slow.
func appendKeyObject(b []byte, key feed.PartitionKey, paths []string) []byte {
	b = append(b, '{')
	i, first := -1, true
	for v := range rawjson.Elements([]byte(key)) {
		if i++; i >= len(paths) || string(v) == "{}" { // undefined
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = rawjson.AppendString(b, strings.TrimPrefix(paths[i], "/"))
		b = append(append(b, ':'), v...)
	}
	return append(b, '}')
}
