// Package rawjson reads and changes JSON text without decoding: the functions check the syntax, find parts, and
// remove parts. Documents pass through this system unchanged, with their digits, escapes and order, because decoding
// would lose these and cost more than all other work.
//
//	levels, ok := rawjson.Check(body)              // JSON in UTF-8? how deep?
//	city := rawjson.Lookup(body, "address", "city")
//	for key, value := range rawjson.Members(body) {
//		if key.Is("id") { … rawjson.Text(value) … }
//	}
//
// Use a [Scanner] if you need places in addition to values, if you want to walk into a value, or if you check a text
// while reading:
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
// If an object repeats a member, the last counts, as for [encoding/json] and for JavaScript. [Lookup] and [Distinct]
// follow this rule, so the store and a query always read a key in the same way.
//
// [Check] and [Strict] accept a text if [encoding/json.Valid] accepts the text and the text is UTF-8. encoding/json
// replaces bytes that are not UTF-8, but a stored text must not change. All other functions accept any text. They
// never read beyond its end, and stop at a byte that cannot be JSON, because a page that was cut short on the network
// must not cause a panic.
package rawjson
