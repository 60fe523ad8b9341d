package notes

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"
)

// The actions of a request.
const (
	Retry   = "retry"   // hand a letter to the handler again
	Release = "release" // let a held key go on
)

// Request is what the owner of a key's range is asked for, by whoever writes it as a record among the leases.
type Request struct {
	Action string // another than these is of a newer version
	EPK    string // the effective partition key, by which its owner is found
	Key    string // the partition key
	Letter string // to be handed over again
	Tries  int    // how often it was begun to serve it
}

// The properties of a request.
const (
	actionProperty = "changefeed.action"
	epkProperty    = "changefeed.epk"
	keyProperty    = "changefeed.key"
	letterProperty = "changefeed.letter"
	triesProperty  = "changefeed.tries"
)

// Token is the token of the record: the same for who asks the same, so that it is served once.
func (q Request) Token() string {
	// Keys may share an effective partition key, and may be longer than an id.
	sum := sha256.Sum256([]byte(q.Key))
	return q.Action + "." + q.EPK + "." + hex.EncodeToString(sum[:8]) + "." + q.Letter
}

// Properties are the properties of the record, beside others that it has.
func (q Request) Properties(others map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, others)
	maps.Copy(all, map[string]string{
		actionProperty: q.Action, epkProperty: q.EPK, keyProperty: q.Key, letterProperty: q.Letter, triesProperty: strconv.Itoa(q.Tries),
	})
	return all
}

// ReadRequest reads the properties of a record.
func ReadRequest(properties map[string]string) Request {
	tries, _ := strconv.Atoi(properties[triesProperty]) // no number is none
	return Request{
		Action: properties[actionProperty], EPK: properties[epkProperty], Key: properties[keyProperty],
		Letter: properties[letterProperty], Tries: tries,
	}
}
