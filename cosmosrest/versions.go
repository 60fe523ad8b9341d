package cosmosrest

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/millrace/changefeed"
)

// checkVersions refuses the starts and containers from which all versions and deletes
// cannot be read.
func (f *feedRead) checkVersions() error {
	if f.o.Mode != changefeed.AllVersionsAndDeletes {
		return nil
	}
	switch {
	case !f.wrapped:
		return badRequest("x-ms-cosmos-changefeed-wire-format-version is absent: want %s with Full-Fidelity Feed", wireFormat)
	case f.cont.Retention() == 0:
		return badRequest("container %q has no changeFeedPolicy: want one with a retentionDuration above 0 to read all versions and deletes, or a server with --retention", f.cont.ID())
	case f.from.Token == "" && !f.from.Start.IsNow():
		return badRequest("all versions and deletes cannot be read from the beginning or a time: want If-None-Match with * or a continuation")
	}
	return nil
}

// appendWrapped adds a document of the latest-version feed with its metadata.
func appendWrapped(b []byte, ch *changefeed.Change) []byte {
	b = append(append(b, `{"current":`...), ch.Body...)
	return append(appendMetadata(b, ch), `}}`...)
}

// appendMetadata opens the metadata of a change.
func appendMetadata(b []byte, ch *changefeed.Change) []byte {
	b = append(b, `,"metadata":{"lsn":`...)
	b = strconv.AppendInt(b, ch.LSN, 10)
	b = append(b, `,"crts":`...)
	return strconv.AppendInt(b, ch.Time.Unix(), 10)
}

// appendVersion adds a change of the feed of all versions and deletes. A delete has an
// empty document, and says in its metadata which one it was.
func appendVersion(b []byte, ch *changefeed.Change, paths []string) []byte {
	b = append(b, `{"current":`...)
	if ch.Op == changefeed.OpDelete {
		b = append(b, `{}`...)
	} else {
		b = append(b, ch.Body...)
	}
	b = appendMetadata(b, ch)
	b = append(append(b, `,"operationType":"`...), ch.Op.String()...)
	b = append(b, `","previousImageLSN":`...)
	b = strconv.AppendInt(b, ch.PreviousLSN, 10)
	if ch.Op == changefeed.OpDelete {
		b = append(b, `,"timeToLiveExpired":`...)
		b = strconv.AppendBool(b, ch.Expired)
		b = append(b, `,"id":`...)
		b = appendString(b, ch.ID)
		b = append(b, `,"partitionKey":`...)
		b = appendKeyObject(b, ch.PartitionKey, paths)
	}
	b = append(b, '}')
	if len(ch.Previous) > 0 {
		b = append(append(b, `,"previous":`...), ch.Previous...)
	}
	return append(b, '}')
}

// appendKeyObject adds a partition key as an object: the value of each path that the
// document has.
func appendKeyObject(b []byte, key changefeed.PartitionKey, paths []string) []byte {
	var values []json.RawMessage
	_ = json.Unmarshal([]byte(key), &values) // the store's own keys are JSON arrays
	b = append(b, '{')
	first := true
	for i, v := range values {
		if i >= len(paths) || string(v) == "{}" { // undefined
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendString(b, strings.TrimPrefix(paths[i], "/"))
		b = append(append(b, ':'), v...)
	}
	return append(b, '}')
}

// appendString adds a JSON string.
func appendString(b []byte, s string) []byte {
	text, _ := json.Marshal(s) // strings always marshal
	return append(b, text...)
}
