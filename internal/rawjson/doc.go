// Package rawjson reads JSON text without decoding it: whether it is JSON, and where
// its parts are. It is for documents, which pass through as they came.
//
//	if !rawjson.Valid(body) {
//		return errNotJSON
//	}
//	for name, value := range rawjson.Members(body) {
//		...
//	}
//
// [Valid] agrees with [encoding/json.Valid] on every text, and is several times as fast
// on long strings. All else wants text that is valid.
package rawjson
