// Package rawjson reads JSON text without decoding it: whether it is JSON, and where
// its parts are. Documents pass through this system as they came, with their digits,
// escapes and order, and decoding would lose these and cost more than all else.
//
//	if !rawjson.Valid(body) {
//		return errNotJSON
//	}
//	for name, value := range rawjson.Members(body) {
//		...
//	}
//
// [Valid] agrees with [encoding/json.Valid] on every text, and is several times as fast
// on long strings. The other functions need a text that Valid has accepted: they check
// no bounds twice.
package rawjson
