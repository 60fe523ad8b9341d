// Package rawjson reads and changes JSON text without decoding it: whether it is JSON,
// where its parts are, and what a part becomes when it is left out. Documents pass
// through this system as they came, with their digits, escapes and order, because
// decoding would lose these and cost more than everything else.
//
//	levels, ok := rawjson.Check(body)              // JSON in UTF-8? how deep?
//	city := rawjson.Lookup(body, "address", "city")
//	for key, value := range rawjson.Members(body) {
//		if key.Is("id") { … rawjson.Text(value) … }
//	}
//
// A [Scanner] is for those who need places and not only values, who walk into a value
// without stepping over it first, or who check a text while they read it:
//
//	s := rawjson.Strict(body)
//	for from, key := range s.Object() {
//		at := s.Value()
//		…
//	}
//	if !s.End() { … } // body is not JSON
//
// # Rules
//
// Where an object repeats a member, the last one counts, as for [encoding/json] and for
// JavaScript. [Lookup] and [Distinct] keep that rule, so that a key which the store reads
// in one way is not read in another by a query.
//
// [Check] and [Strict] accept what [encoding/json.Valid] accepts, if it is UTF-8 as well:
// encoding/json replaces other bytes, and a text that is kept must not change. All other
// functions take any text. They never read beyond its end, and stop at a byte that cannot
// be JSON, because a page that was cut short on the network must not become a panic.
package rawjson
